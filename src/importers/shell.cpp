// SPDX-License-Identifier: Apache-2.0
/// A reader of the part of the shell that batch scripts are made of. It never runs anything.
#include "llmtrain/importers/shell.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "shell_expansion.hpp"

namespace llmtrain {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }

class Reader {
 public:
  Reader(std::string_view text, ShellVariables variables) : text_(text) { script_.variables = std::move(variables); }

  ShellScript take() {
    while (at_ < text_.size()) command();
    return std::move(script_);
  }

 private:
  char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool starts(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  void note(std::string subject, std::string text) {
    if (noted_.insert(subject).second) script_.notes.push_back({line_, std::move(subject), std::move(text)});
  }

  void newline() {
    ++at_;
    ++line_;
    for (const std::string& delimiter : here_documents_) skip_here_document(delimiter);
    here_documents_.clear();
  }

  void skip_here_document(const std::string& delimiter) {
    note("<<" + delimiter, "begins a here-document, which is not read");
    while (at_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      std::string_view line = text_.substr(at_, end - at_);
      while (!line.empty() && line.front() == '\t') line.remove_prefix(1);
      at_ = std::min(end + 1, text_.size());
      ++line_;
      if (line == delimiter) return;
    }
  }

  /// True if blanks, continued lines or a comment were skipped up to the next word or operator.
  void skip_blanks() {
    while (at_ < text_.size()) {
      if (is_blank(here()) || here() == '\r') {
        ++at_;
      } else if (starts("\\\n")) {
        at_ += 2;
        ++line_;
      } else if (starts("\\\r\n")) {
        at_ += 3;
        ++line_;
      } else if (here() == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        return;
      }
    }
  }

  /// One simple command, up to and with what ends it.
  void command() {
    ShellCommand out;
    bool assigns = true;  // NAME=value may still come
    for (;;) {
      skip_blanks();
      if (out.words.empty()) out.line = line_;
      const char c = here();
      if (c == '\0') break;
      if (c == '\n') {
        newline();
        break;
      }
      if (redirection()) continue;
      if (std::string_view(";&|()").find(c) != std::string_view::npos) {
        ++at_;
        break;
      }
      if (assigns && assignment()) continue;
      const std::size_t begin = at_;
      std::vector<std::string> words = word();
      const std::string_view raw = text_.substr(begin, at_ - begin);
      if (out.words.empty() && keyword(raw)) {
        if (!out.words.empty()) break;
        continue;
      }
      static constexpr std::array declare{"export", "declare", "local", "readonly", "typeset", "-a", "-x", "-r", "-i"};
      assigns = assigns && std::find(declare.begin(), declare.end(), raw) != declare.end();
      out.words.insert(out.words.end(), words.begin(), words.end());
    }
    if (!out.words.empty()) script_.commands.push_back(std::move(out));
  }

  /// Words that only shape the flow of a script; what follows is read as a command.
  bool keyword(std::string_view raw) {
    static constexpr std::array flow{"if", "elif", "else", "for", "while", "until", "case"};
    static constexpr std::array others{"then", "fi", "do", "done", "esac", "{", "}", "!", "time", "function"};
    if (std::find(flow.begin(), flow.end(), raw) != flow.end()) {
      note(std::string(raw), "is not evaluated: all branches and loop bodies are read once, in the order of the text");
      return true;
    }
    return std::find(others.begin(), others.end(), raw) != others.end();
  }

  /// `>FILE`, `2>&1`, `<<END`: skipped with what belongs to it.
  bool redirection() {
    std::size_t at = at_;
    while (at < text_.size() && text_[at] >= '0' && text_[at] <= '9') ++at;
    if (at < text_.size() && text_[at] == '&' && at + 1 < text_.size() && text_[at + 1] == '>') ++at;
    if (at >= text_.size() || (text_[at] != '>' && text_[at] != '<')) return false;
    const bool document = text_.substr(at).starts_with("<<") && !text_.substr(at).starts_with("<<<");
    while (at < text_.size() && std::string_view("<>&|-").find(text_[at]) != std::string_view::npos) ++at;
    at_ = at;
    skip_blanks();
    const std::vector<std::string> target = here() == '\n' || here() == '\0' ? std::vector<std::string>{} : word();
    if (document && !target.empty()) here_documents_.push_back(target.front());
    return true;
  }

  /// NAME=value, NAME+=value, NAME=(a b), NAME+=(a b), NAME[i]=value.
  bool assignment() {
    std::size_t at = at_;
    while (at < text_.size() && is_name(text_[at])) ++at;
    if (at == at_ || (text_[at_] >= '0' && text_[at_] <= '9')) return false;
    const std::string name(text_.substr(at_, at - at_));
    const bool more = text_.substr(at).starts_with("+=");
    if (!more && !text_.substr(at).starts_with("=")) return false;
    at_ = at + (more ? 2 : 1);
    std::vector<std::string>& value = script_.variables[name];
    std::vector<std::string> old;
    old.swap(value);
    if (here() == '(') {
      ++at_;
      std::vector<std::string> items = more ? old : std::vector<std::string>{};
      for (;;) {
        skip_blanks();
        if (here() == '\n') {
          newline();
        } else if (here() == ')' || here() == '\0') {
          break;
        } else if (std::string_view(";&|(<>").find(here()) != std::string_view::npos) {
          ++at_;  // no script has it here
        } else {
          script_.variables[name] = old;  // NAME=(${NAME[@]} more)
          for (std::string& item : word()) items.push_back(std::move(item));
        }
      }
      ++at_;
      script_.variables[name] = std::move(items);
      return true;
    }
    script_.variables[name] = old;
    std::string text = more && !old.empty() ? old.front() : "";
    const bool empty = at_ >= text_.size() || is_blank(here()) || here() == '\n' || here() == ';';
    if (!empty) {
      // No splitting in an assignment: the pieces of unquoted expansions stay together.
      whole_ = true;
      const std::vector<std::string> words = word();
      whole_ = false;
      text += fmt::format("{}", fmt::join(words, " "));
    }
    std::vector<std::string>& after = script_.variables[name];
    if (more && after.size() > 1) {
      after.front() = text;
    } else {
      after.assign(1, text);
    }
    return true;
  }

  /// One word as the shell would pass it on: several for unquoted lists and arrays, none for an empty expansion.
  std::vector<std::string> word() {
    Fields fields(whole_);
    while (at_ < text_.size()) {
      const char c = here();
      if (is_blank(c) || c == '\n' || c == '\r' || std::string_view(";&|()<>").find(c) != std::string_view::npos) break;
      if (c == '\'') {
        single_quoted(fields);
      } else if (c == '"') {
        double_quoted(fields);
      } else if (c == '\\') {
        escaped(fields);
      } else if (c == '$' || c == '`') {
        expand(fields, false);
      } else {
        fields.add(c);
        ++at_;
      }
    }
    return fields.take();
  }

  void escaped(Fields& fields) {
    ++at_;
    if (here() == '\n') {
      ++line_;
    } else if (here() != '\0') {
      fields.add(here());
    }
    ++at_;
  }

  void single_quoted(Fields& fields) {
    const std::size_t end = std::min(text_.find('\'', at_ + 1), text_.size());
    fields.add(text_.substr(at_ + 1, end - at_ - 1));
    count_lines(end);
    at_ = std::min(end + 1, text_.size());
  }

  void double_quoted(Fields& fields) {
    fields.add("");
    for (++at_; at_ < text_.size() && here() != '"';) {
      if (here() == '\\' && at_ + 1 < text_.size() &&
          std::string_view("\"\\$`\n").find(text_[at_ + 1]) != std::string_view::npos) {
        escaped(fields);
      } else if (here() == '$' || here() == '`') {
        expand(fields, true);
      } else {
        line_ += here() == '\n' ? 1 : 0;
        fields.add(here());
        ++at_;
      }
    }
    ++at_;
  }

  void expand(Fields& fields, bool quoted) {
    const Expansion found = expand_at(text_, at_, script_.variables, quoted);
    if (!found.problem.empty()) note(found.items.front(), found.problem);
    count_lines(found.end);
    at_ = found.end;
    if (found.list) {
      fields.add_list(found.items, !quoted);
    } else if (quoted || !found.problem.empty()) {
      fields.add(found.items.front());
    } else {
      fields.add_split(found.items.front());
    }
  }

  void count_lines(std::size_t end) {
    line_ +=
        static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                    text_.begin() + static_cast<std::ptrdiff_t>(std::min(end, text_.size())), '\n'));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool whole_ = false;
  std::vector<std::string> here_documents_;
  std::set<std::string> noted_;
  ShellScript script_;
};

}  // namespace

ShellScript read_shell(std::string_view text, ShellVariables variables) {
  return Reader(text, std::move(variables)).take();
}

std::map<std::string, std::string> sbatch_options(std::string_view text) {
  static const std::map<std::string, std::string, std::less<>> short_names{
      {"-N", "nodes"}, {"-n", "ntasks"}, {"-t", "time"}, {"-J", "job-name"}, {"-G", "gpus"}, {"-c", "cpus-per-task"}};
  std::map<std::string, std::string> options;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with("#SBATCH")) continue;
    const std::vector<ShellCommand> commands = read_shell(line.substr(1)).commands;
    if (commands.empty()) continue;
    const std::vector<std::string>& words = commands.front().words;
    for (std::size_t i = 1; i < words.size(); ++i) {
      const std::size_t equals = words[i].find('=');
      const bool has_next = i + 1 < words.size() && !words[i + 1].starts_with('-');
      const auto short_name = short_names.find(words[i]);
      if (short_name == short_names.end() && !words[i].starts_with("--")) continue;
      const std::string name = short_name != short_names.end()
                                   ? short_name->second
                                   : words[i].substr(2, std::min(equals, words[i].size()) - 2);
      options[name] = equals != std::string::npos ? words[i].substr(equals + 1) : has_next ? words[++i] : "";
    }
  }
  return options;
}

}  // namespace llmtrain
