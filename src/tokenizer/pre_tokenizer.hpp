// SPDX-License-Identifier: Apache-2.0
/// Cuts a text into the pieces that are merged each by itself: one scanner, or a sequence of splits as tokenizer.json
/// describes it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "llmtrain/tokenizer/scan.hpp"
#include "regex.hpp"

namespace llmtrain {

/// What a split makes of its matches, as `behavior` of tokenizer.json.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// One pre-tokenizer of a sequence: cuts every piece of the one before.
struct SplitStep {
  std::variant<Scan, Regex, std::string> matcher;  ///< a string matches itself
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;            ///< what does not match is what is cut out
  bool add_prefix_space = false;  ///< first puts a space before each piece that does not begin with one
};

class PreTokenizer {
 public:
  /// `text` describes it in full, for the digest.
  PreTokenizer(std::vector<SplitStep> steps, std::string text) : steps_(std::move(steps)), text_(std::move(text)) {}

  /// The only step, if it is a scanner that keeps all of the text.
  Scan single_scan() const;
  const std::string& text() const { return text_; }

  /// Calls `piece` for each piece in order; none is empty.
  void split(std::string_view text, const std::function<void(std::string_view)>& piece) const;

 private:
  std::vector<SplitStep> steps_;
  std::string text_;
};

}  // namespace llmtrain
