// SPDX-License-Identifier: Apache-2.0
/// Regular expressions that no scanner stands for, by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace llmtrain {

/// Bytes [begin, end) of a text.
struct Span {
  std::size_t begin;
  std::size_t end;
};

/// How a file means its expression: ^ and $ hold at lines in Oniguruma's syntax, at the text's ends in Rust's.
enum class RegexSyntax { oniguruma, rust };

/// A compiled expression; immutable, so threads may share it.
class Regex {
 public:
  /// Throws std::invalid_argument with what is wrong: PCRE2's message, or a construct that means something else there.
  Regex(std::string_view pattern, RegexSyntax syntax);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  const std::string& pattern() const { return pattern_; }

  /// All matches from left to right. A byte that is not UTF-8 counts as a control character. Throws Error(bad_input) where
  /// a match needs more steps or memory than is sane.
  void find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  struct Code;
  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace llmtrain
