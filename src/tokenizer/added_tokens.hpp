// SPDX-License-Identifier: Apache-2.0
/// Tokens that are cut out of a text before anything else happens to it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace llmtrain {

/// As `added_tokens` of tokenizer.json.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool single_word = false;  ///< only where no word touches it
  bool lstrip = false;       ///< takes the white space before it along
  bool rstrip = false;       ///< and behind
  bool normalized = false;   ///< is looked for in the normalized text
  bool special = false;      ///< may be treated as text
};

/// A stretch of a text: of a token, or of text where `id` is `text_id`.
struct Segment {
  static constexpr std::int32_t text_id = -1;
  std::size_t begin;
  std::size_t end;
  std::int32_t id;
};

/// Finds the tokens of a set, the leftmost first and of those the longest; immutable.
class TokenFinder {
 public:
  TokenFinder() = default;
  explicit TokenFinder(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  /// Cuts the text into segments, none of text being empty. `special_too`: special tokens are cut out too.
  void cut(std::string_view text, bool special_too, std::vector<Segment>& segments) const;

 private:
  struct Match {
    const AddedToken* token = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  Match next(std::string_view text, std::size_t from) const;

  std::vector<AddedToken> tokens_;
  std::vector<bool> first_ = std::vector<bool>(256);        ///< [byte]: some token begins with it
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;  ///< trie: node << 8 | byte -> node; the root is 0
  std::vector<std::int32_t> token_at_ = {-1};               ///< [node]: index of the token that ends here, or -1
};

}  // namespace llmtrain
