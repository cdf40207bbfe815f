// SPDX-License-Identifier: Apache-2.0
/// The byte-level BPE tokenizer that all file kinds describe.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "added_tokens.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"
#include "merges.hpp"
#include "pre_tokenizer.hpp"
#include "vocabulary.hpp"

namespace llmtrain {

/// What a file says.
struct BpeParts {
  std::string name;       ///< of the file, for messages
  Vocabulary vocabulary;  ///< with the added tokens
  std::vector<Merge> merges;
  bool whole_words = false;  ///< a piece that is a token is not merged (ignore_merges)
  bool nfc = false;
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added;
};

class BpeTokenizer final : public Tokenizer {
 public:
  /// Throws Error(bad_input) unless each of the 256 bytes is a token.
  BpeTokenizer(BpeParts parts, std::optional<std::int32_t> eod);
  ~BpeTokenizer() override;

  std::int64_t vocab() const override { return parts_.vocabulary.size(); }
  void encode(std::string_view text, std::vector<std::int32_t>& tokens) const override { encode(text, true, tokens); }
  void encode_plain(std::string_view text, std::vector<std::int32_t>& tokens) const override {
    encode(text, false, tokens);
  }
  std::string decode(std::span<const std::int32_t> tokens) const override;
  std::optional<std::int32_t> eod() const override { return eod_; }
  std::string digest() const override { return digest_; }
  std::string describe() const override;

 private:
  class Encoding;
  struct Workspace;

  void encode(std::string_view text, bool special_too, std::vector<std::int32_t>& tokens) const;
  std::string make_digest() const;

  BpeParts parts_;
  std::optional<std::int32_t> eod_;
  MergeTable merges_;
  std::array<std::int32_t, 256> bytes_{};  ///< id of each byte
  Scan scan_;                              ///< nullptr: pre_tokenizer does more than one scan
  TokenFinder raw_;                        ///< added tokens that are looked for before normalization
  TokenFinder normalized_;                 ///< and after
  std::unordered_map<std::int32_t, std::string> added_text_;
  std::string digest_;

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Workspace>> idle_;  ///< of threads that encoded before
};

}  // namespace llmtrain
