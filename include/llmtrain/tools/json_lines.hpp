// SPDX-License-Identifier: Apache-2.0
/// Reads JSON lines as a stream: lines of any length up to a cap, and the text of chosen keys in each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace llmtrain {

/// One line, without its '\n'.
struct JsonLine {
  std::string_view text;    ///< `json_padding` more bytes after it are readable
  std::int64_t number = 0;  ///< 1-based
  std::int64_t offset = 0;  ///< of its first byte in the file
};

inline constexpr std::size_t json_padding = 64;

/// The lines of a file. Only '\n' ends a line. Memory is one buffer of the longest line so far.
class LineReader {
 public:
  /// Throws Error(missing_input) if `path` cannot be opened.
  LineReader(std::string path, std::int64_t max_line_bytes);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line, valid until the next call; false at the end. Throws Error(bad_input) for a line above the cap,
  /// Error(io_error).
  bool next(JsonLine& line);

 private:
  bool fill();

  std::string path_;
  std::size_t max_line_bytes_;
  int descriptor_ = -1;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;    // of the next line in the buffer
  std::size_t scanned_ = 0;  // no '\n' before this place
  std::size_t end_ = 0;      // of what was read
  bool at_end_ = false;
  std::int64_t number_ = 0;
  std::int64_t offset_ = 0;  // of begin_ in the file
};

/// Takes the strings of chosen keys from a line and checks that the whole line is one JSON object.
class KeyReader {
 public:
  explicit KeyReader(std::vector<std::string> keys);
  ~KeyReader();

  /// Reads one line of `path`. Throws Error(bad_input) with file, line and byte offset if it is not UTF-8, not one JSON
  /// object, or lacks a key as a string.
  void read(const std::string& path, const JsonLine& line);

  std::string_view text(std::size_t key) const { return texts_[key]; }  ///< valid until the next read
  bool repeated(std::size_t key) const { return found_[key] > 1; }      ///< then the last one was taken

 private:
  struct Parser;
  void walk();

  std::vector<std::string> keys_;
  std::vector<std::string_view> texts_;
  std::vector<int> found_;
  std::unique_ptr<Parser> parser_;
};

/// Whether a line has nothing but JSON white space.
bool is_blank(std::string_view text);

/// Index of the first byte that is not part of well-formed UTF-8, or text.size().
std::size_t first_invalid_utf8(std::string_view text);

}  // namespace llmtrain
