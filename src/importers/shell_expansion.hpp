// SPDX-License-Identifier: Apache-2.0
/// What stands after a '$' or '`' in a script, and the words that quotes and expansions build together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/importers/shell.hpp"

namespace llmtrain {

inline bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Words in the making.
class Fields {
 public:
  explicit Fields(bool whole) : whole_(whole) {}  ///< whole: nothing splits, as in an assignment

  void add(char c) {
    current_.push_back(c);
    open_ = true;
  }
  void add(std::string_view text) {
    current_ += text;
    open_ = true;
  }
  /// An unquoted expansion: blanks in it separate words.
  void add_split(std::string_view text);
  /// ${NAME[@]}: one word each; `split`: unquoted, so that blanks in them separate words too.
  void add_list(const std::vector<std::string>& items, bool split);
  std::vector<std::string> take();

 private:
  void close();

  bool whole_;
  bool open_ = false;
  std::string current_;
  std::vector<std::string> done_;
};

struct Expansion {
  std::vector<std::string> items{""};  ///< one, unless `list`
  bool list = false;
  std::size_t end = 0;  ///< place after it
  std::string problem;  ///< why it stays as it is written; empty if it does not
};

/// The expansion that begins at text[at].
Expansion expand_at(std::string_view text, std::size_t at, const ShellVariables& variables, bool quoted);

}  // namespace llmtrain
