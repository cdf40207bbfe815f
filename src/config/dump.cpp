// SPDX-License-Identifier: Apache-2.0
/// Decks as YAML text.
#include "llmtrain/config/dump.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "llmtrain/base/wrap.hpp"
#include "llmtrain/config/key.hpp"
#include "llmtrain/config/noted_yaml.hpp"
#include "llmtrain/config/numbers.hpp"

namespace llmtrain {
namespace {

constexpr std::size_t comment_width = 110;

/// Writes keys in order, opening and closing maps as their paths ask.
class Writer {
 public:
  explicit Writer(bool comments) : comments_(comments) {}

  /// A short `note` stands behind the value, a long one above it.
  void write(const Key& key, const std::string& value, const std::string& note = "") {
    const std::vector<std::string> parts = split(key.path);
    std::size_t common = 0;
    while (common < groups_.size() && common + 1 < parts.size() && groups_[common] == parts[common]) ++common;
    groups_.resize(common);
    for (; common + 1 < parts.size(); ++common) {
      out_ += fmt::format("{}{}:\n", indent(), parts[common]);
      groups_.push_back(parts[common]);
    }
    if (comments_) comment(key);
    const std::string line = fmt::format("{}{}: {}", indent(), parts.back(), value);
    const bool behind = line.size() + note.size() <= comment_width;
    if (!behind && !note.empty()) comment(note);
    out_ += line + (behind && !note.empty() ? "  # " + note : "") + "\n";
  }

  void heading(const Block& block) {
    groups_.clear();
    if (comments_) out_ += fmt::format("\n# {}: {}\n", block.name, block.meaning);
  }

  std::string take() { return std::move(out_); }

 private:
  static std::vector<std::string> split(const std::string& path) {
    std::vector<std::string> parts(1);
    for (const char c : path) {
      if (c == '.') {
        parts.emplace_back();
      } else {
        parts.back().push_back(c);
      }
    }
    return parts;
  }

  std::string indent() const { return std::string(2 * groups_.size(), ' '); }

  void comment(const Key& key) {
    comment(fmt::format("{} Takes {}; default {}.", key.facts.meaning, key.takes(), key.default_text()));
  }

  void comment(const std::string& text) {
    for (const std::string& line : wrapped(text, comment_width)) out_ += fmt::format("{}# {}\n", indent(), line);
  }

  bool comments_;
  std::vector<std::string> groups_;
  std::string out_;
};

std::string source_text(const DataSource& source) {
  if (source.weight == 0) return quote_yaml(source.prefix);
  return fmt::format("{{prefix: {}, weight: {}}}", quote_yaml(source.prefix), format_real(source.weight));
}

std::string tokenizer_text(const TokenizerConfig& tokenizer) {
  if (tokenizer.pattern.empty() && tokenizer.special.empty() && tokenizer.eod.empty())
    return quote_yaml(tokenizer.file);
  std::string out = fmt::format("{{file: {}", quote_yaml(tokenizer.file));
  if (!tokenizer.pattern.empty()) out += fmt::format(", pattern: {}", quote_yaml(tokenizer.pattern));
  if (!tokenizer.special.empty()) {
    std::vector<std::string> items;
    for (const auto& [text, id] : tokenizer.special) items.push_back(fmt::format("{}: {}", quote_yaml(text), id));
    out += fmt::format(", special: {{{}}}", fmt::join(items, ", "));
  }
  if (!tokenizer.eod.empty()) out += fmt::format(", eod: {}", quote_yaml(tokenizer.eod));
  return out + "}";
}

struct Formatter {
  const Key& key;

  std::string item(std::int64_t value) const { return std::to_string(value); }
  std::string item(double value) const { return format_real(value); }
  std::string item(const std::string& value) const { return quote_yaml(value); }
  std::string item(const DataSource& value) const { return source_text(value); }

  std::string operator()(const std::int64_t* value) const { return std::to_string(*value); }
  std::string operator()(const int* value) const { return std::to_string(*value); }
  std::string operator()(const double* value) const { return format_real(*value); }
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const std::string* value) const { return quote_yaml(*value); }
  std::string operator()(const TokenizerConfig* value) const { return tokenizer_text(*value); }
  std::string operator()(const Choice& value) const {
    return std::string(key.facts.names.at(static_cast<std::size_t>(value.get(value.at))));
  }
  template <class T>
  std::string operator()(const std::vector<T>* values) const {
    std::vector<std::string> items;
    for (const T& value : *values) items.push_back(item(value));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
};

/// A deck whose paths are blanked, for the run id: equal training gives equal text wherever its files lie.
Deck without_paths(Deck deck) {
  for (DataSource& source : deck.data.train) source.prefix.assign(1, '-');
  for (DataSource& source : deck.data.valid) source.prefix.assign(1, '-');
  if (deck.data.tokenizer.file != "bytes") deck.data.tokenizer.file.assign(1, '-');
  return deck;
}

std::string dump(const Deck& deck, DumpFor use, bool comments) {
  Writer writer(comments);
  for (const Block& block : deck_blocks()) {
    writer.heading(block);
    for (const Key& key : block.keys) {
      if (use == DumpFor::run_id && !key.facts.in_run_id) continue;
      if (use == DumpFor::checkpoint && !key.facts.in_checkpoint) continue;
      writer.write(key, format_value(key, deck));
    }
  }
  return writer.take();
}

}  // namespace

std::string format_value(const Key& key, const Deck& deck) {
  Deck copy = deck;  // slots point into a mutable deck
  return std::visit(Formatter{key}, key.slot(copy));
}

std::string quote_yaml(std::string_view text) {
  const auto safe = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || c == '/';
  };
  // Words that some YAML reader takes for something else than text.
  static constexpr std::array words{"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const bool starts_as_word = !text.empty() && ((text[0] | 32) >= 'a' && (text[0] | 32) <= 'z');
  const bool known_digit_word = text == "1f1b";
  if (((starts_as_word && std::all_of(text.begin(), text.end(), safe)) || known_digit_word) &&
      std::find(words.begin(), words.end(), lower) == words.end()) {
    return std::string(text);
  }
  std::string out(1, '"');
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  out.push_back('"');
  return out;
}

std::string to_yaml(const Deck& deck, DumpFor use) {
  return dump(use == DumpFor::run_id ? without_paths(deck) : deck, use, false);
}

std::string to_commented_yaml(const Deck& deck) {
  return "# A deck of llmtrain with every key: its meaning, what it takes, its default. A deck needs only the keys "
         "that\n"
         "# differ from their defaults. Whole numbers may be written as 1e6. Paths are relative to the current "
         "directory.\n" +
         dump(deck, DumpFor::run, true);
}

std::string to_noted_yaml(const NotedValues& values) {
  Writer writer(false);
  for (const Block& block : deck_blocks()) {
    writer.heading(block);
    for (const Key& key : block.keys) {
      const auto found = values.find(key.path);
      if (found != values.end()) writer.write(key, found->second.value, found->second.note);
    }
  }
  return writer.take();
}

}  // namespace llmtrain
