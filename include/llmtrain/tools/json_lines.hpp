// SPDX-License-Identifier: Apache-2.0
/// Strict reading of one JSON object a line, and what to do about text that is not Unicode.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace llmtrain {

/// What becomes of a line with bytes that are not UTF-8 or an escape that is half of a surrogate pair.
enum class BadText {
  error,    ///< the line is refused
  replace,  ///< each such sequence becomes U+FFFD, as Python's errors="replace" does; the line is read
  skip,     ///< the line is left out
};

/// Why a line is refused.
struct LineFault {
  std::string reason;
  std::size_t at = 0;  ///< byte of the line
};

/// Takes the strings of chosen keys from a line and checks that the whole line is one JSON object.
class KeyReader {
 public:
  KeyReader(std::vector<std::string> keys, BadText bad_text);
  ~KeyReader();

  enum class Outcome { read, replaced, skipped };

  /// Reads a line, after which `json_padding` bytes are readable. Throws LineFault if it is not one JSON object or lacks a
  /// key as a string, or for bad text that is an error.
  Outcome read(std::string_view line);

  std::string_view text(std::size_t key) const { return texts_[key]; }  ///< valid until the next read
  bool repeated(std::size_t key) const { return found_[key] > 1; }      ///< then the last one was taken

 private:
  struct Parser;
  void parse(std::string_view line);
  void walk();

  std::vector<std::string> keys_;
  BadText bad_text_;
  std::vector<std::string_view> texts_;
  std::vector<int> found_;
  std::string replaced_;  ///< a line without its bad text
  std::unique_ptr<Parser> parser_;
};

/// Whether a line has nothing but JSON white space.
bool is_blank(std::string_view text);

/// Bytes of the well-formed UTF-8 sequence at the start of `text`; else minus those of its longest part that could begin
/// one, at least one byte (Unicode 15, table 3-7, and "maximal subpart" in section 3.9).
int utf8_step(std::string_view text);

/// Bytes of a line that are not UTF-8, or an escape that is half of a surrogate pair.
struct BadPlace {
  std::size_t at = std::string_view::npos;  ///< npos: there is none
  std::size_t bytes = 0;
  bool escape = false;
};

/// The first bad text of a JSON line at or after byte `from`, which is not within an escape.
BadPlace find_bad_text(std::string_view line, std::size_t from = 0);

/// `line` with U+FFFD, or its escape, in place of all bad text.
std::string replace_bad_text(std::string_view line);

}  // namespace llmtrain
