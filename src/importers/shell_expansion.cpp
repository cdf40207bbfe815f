// SPDX-License-Identifier: Apache-2.0
/// Expansion of variables and arithmetic; substitution of commands is never done.
#include "shell_expansion.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace llmtrain {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Place of the bracket that closes the one at text[at]; text.size() if there is none. Quotes hide brackets.
std::size_t closing(std::string_view text, std::size_t at) {
  const char open = text[at];
  const char close = open == '(' ? ')' : '}';
  int depth = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '\'') {
      i = std::min(text.find('\'', i + 1), text.size());
    } else if (text[i] == open) {
      ++depth;
    } else if (text[i] == close && --depth == 0) {
      return i;
    }
  }
  return text.size();
}

Expansion as_written(std::string_view text, std::size_t at, std::size_t end, std::string why) {
  Expansion out;
  out.end = std::min(end, text.size());
  out.items = {std::string(text.substr(at, out.end - at))};
  out.problem = std::move(why);
  return out;
}

Expansion value(std::string text, std::size_t end) {
  Expansion out;
  out.items = {std::move(text)};
  out.end = end;
  return out;
}

/// The words of a default (`${NAME:-words}`): expanded in turn, as one text.
std::string inner(std::string_view words, const ShellVariables& variables) {
  std::string out;
  for (std::size_t i = 0; i < words.size();) {
    if (words[i] == '$' || words[i] == '`') {
      const Expansion found = expand_at(words, i, variables, true);
      out += fmt::format("{}", fmt::join(found.items, " "));
      i = found.end;
    } else {
      if (words[i] != '"' && words[i] != '\'') out.push_back(words[i]);
      ++i;
    }
  }
  return out;
}

/// ${...} from `at` to `end`, `inside` without the braces.
Expansion braces(std::string_view text, std::size_t at, std::size_t end, const ShellVariables& variables, bool quoted) {
  std::string_view inside = text.substr(at + 2, end - at - 3);
  const bool length = inside.starts_with('#');
  if (length) inside.remove_prefix(1);
  const auto name_end = std::find_if_not(inside.begin(), inside.end(), is_name);
  const std::string_view name(inside.data(), static_cast<std::size_t>(name_end - inside.begin()));
  std::string_view rest = inside.substr(name.size());
  const auto found = variables.find(name);
  const bool known = found != variables.end();
  if (rest == "[@]" || rest == "[*]") {
    if (!known) return as_written(text, at, end, "is set nowhere in the script");
    if (length) return value(std::to_string(found->second.size()), end);
    Expansion out;
    out.end = end;
    out.list = rest == "[@]" || !quoted;
    out.items = out.list ? found->second : std::vector{fmt::format("{}", fmt::join(found->second, " "))};
    return out;
  }
  const std::string text_of = known && !found->second.empty() ? found->second.front() : "";
  if (length && rest.empty() && known) return value(std::to_string(text_of.size()), end);
  const bool colon = rest.starts_with(':');
  if (colon) rest.remove_prefix(1);
  const bool set = known && !(colon && text_of.empty());
  if (!length && (rest.starts_with('-') || rest.starts_with('='))) {
    return value(set ? text_of : inner(rest.substr(1), variables), end);
  }
  if (!length && rest.starts_with('+')) return value(set ? inner(rest.substr(1), variables) : "", end);
  if (!length && known && (rest.empty() || rest.starts_with('?'))) return value(text_of, end);
  if (!known) return as_written(text, at, end, "is set nowhere in the script");
  return as_written(text, at, end, "is an expansion that is not read");
}

}  // namespace

void Fields::close() {
  if (open_) done_.push_back(std::move(current_));
  current_.clear();
  open_ = false;
}

void Fields::add_split(std::string_view text) {
  for (const char c : text) {
    if (!whole_ && is_space(c)) {
      close();
    } else {
      add(c);
    }
  }
}

void Fields::add_list(const std::vector<std::string>& items, bool split) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0 && whole_) add(' ');
    if (i > 0 && !whole_) close();
    if (split) {
      add_split(items[i]);
    } else {
      add(items[i]);
    }
  }
}

std::vector<std::string> Fields::take() {
  close();
  return std::move(done_);
}

Expansion expand_at(std::string_view text, std::size_t at, const ShellVariables& variables, bool quoted) {
  if (text[at] == '`') {
    const std::size_t end = std::min(text.find('`', at + 1), text.size());
    return as_written(text, at, end + 1, "is not run");
  }
  const std::string_view rest = text.substr(at + 1);
  if (rest.starts_with("((")) {
    const std::size_t end = closing(text, at + 1) + 1;
    std::int64_t number = 0;
    const bool whole = end <= text.size() && end >= at + 5;
    if (whole && shell_arithmetic(text.substr(at + 3, end - at - 5), variables, number)) {
      return value(std::to_string(number), end);
    }
    return as_written(text, at, end, "cannot be computed from the script alone");
  }
  if (rest.starts_with('(')) return as_written(text, at, closing(text, at + 1) + 1, "is not run");
  if (rest.starts_with('{')) {
    const std::size_t end = closing(text, at + 1) + 1;
    if (end > text.size()) return as_written(text, at, end, "is not closed");
    return braces(text, at, end, variables, quoted);
  }
  if (rest.starts_with('@') || rest.starts_with('*')) return value("", at + 2);  // the script's own arguments: none
  const auto name_end = std::find_if_not(rest.begin(), rest.end(), is_name);
  std::size_t size = static_cast<std::size_t>(name_end - rest.begin());
  if (!rest.empty() && rest.front() >= '0' && rest.front() <= '9') size = 1;
  if (size == 0) return value("$", at + 1);
  const auto found = variables.find(rest.substr(0, size));
  const bool argument = rest.front() >= '0' && rest.front() <= '9';
  const char* unset = argument ? "is an argument of the script" : "is set nowhere in the script";
  if (found == variables.end()) return as_written(text, at, at + 1 + size, unset);
  return value(found->second.empty() ? "" : found->second.front(), at + 1 + size);
}

}  // namespace llmtrain
