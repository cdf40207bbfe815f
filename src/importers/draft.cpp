// SPDX-License-Identifier: Apache-2.0
/// The deck that an importer makes, as text.
#include "llmtrain/importers/draft.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/wrap.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/config/key.hpp"
#include "llmtrain/config/numbers.hpp"
#include "llmtrain/config/suggest.hpp"

namespace llmtrain {
namespace {

constexpr std::size_t comment_width = 112;

/// What a reader must know first stands first.
constexpr std::array headings{
    std::pair{Fate::open, "Not said by the source; the deck needs it"},
    std::pair{Fate::unknown, "Unknown names; nothing was done unless it is said"},
    std::pair{Fate::unsupported, "Not supported: training with this deck differs in"},
    std::pair{Fate::translated, "Taken into account beyond the comments of the keys below"},
    std::pair{Fate::not_applicable, "Not applicable"},
};

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }, ' ');
  return text;
}

void append(std::string& out, const ImportNote& note) {
  const std::string text = one_line(note.shown.empty() ? note.text : note.shown + ": " + note.text);
  std::string_view indent = "#   ";
  for (const std::string& line : wrapped(text, comment_width)) {
    out += fmt::format("{}{}\n", indent, line);
    indent = "#     ";
  }
}

}  // namespace

std::string_view fate_name(Fate fate) {
  switch (fate) {
    case Fate::translated: return "translated";
    case Fate::not_applicable: return "not applicable";
    case Fate::unsupported: return "unsupported";
    case Fate::unknown: return "unknown";
    case Fate::open: return "open";
  }
  return {};
}

void DeckDraft::set(std::string_view key, std::string value, std::string note) {
  LLMTRAIN_CHECK(find_key(key) != nullptr);
  values_[std::string(key)] = {std::move(value), one_line(std::move(note))};
}

void DeckDraft::set(std::string_view key, std::int64_t value, std::string note) {
  set(key, std::to_string(value), std::move(note));
}

void DeckDraft::set(std::string_view key, double value, std::string note) {
  set(key, format_real(value), std::move(note));
}

void DeckDraft::set(std::string_view key, bool value, std::string note) {
  set(key, std::string(value ? "true" : "false"), std::move(note));
}

std::size_t DeckDraft::count(Fate fate) const {
  return static_cast<std::size_t>(
      std::count_if(notes_.begin(), notes_.end(), [&](const ImportNote& note) { return note.fate == fate; }));
}

std::string DeckDraft::text() const {
  std::string out = one_line("# Made by llmtrain import " + origin_ + ".") + "\n";
  std::set<std::string> beside;  // what the comment of a key already names
  for (const auto& [key, value] : values_) beside.insert(value.note);
  for (const auto& [fate, heading] : headings) {
    std::string lines;
    for (const ImportNote& note : notes_) {
      const bool is_beside = fate == Fate::translated && !note.shown.empty() && beside.contains(one_line(note.shown));
      if (note.fate == fate && !is_beside) append(lines, note);
    }
    if (!lines.empty()) out += fmt::format("#\n# {}:\n{}", heading, lines);
  }
  return out + "\n" + to_noted_yaml(values_);
}

void apply_overrides(DeckDraft& draft, const std::vector<std::string>& overrides) {
  for (const std::string& argument : overrides) {
    const std::size_t equals = argument.find('=');
    const std::string key = argument.substr(0, equals);
    require(equals != std::string::npos && find_key(key) != nullptr, ExitCode::usage,
            "import: '{}' is not of the form block.key=value with a key of the deck{}", argument,
            did_you_mean(suggest_key("", key)));
    draft.set(key, argument.substr(equals + 1), "given to import");
  }
}

std::int64_t whole_number(const std::string& text, const std::string& shown) {
  const Parsed<std::int64_t> number = parse_integer(text);
  require(static_cast<bool>(number), ExitCode::bad_input, "{}: '{}' {}", shown, text, number.problem);
  return number.value;
}

double real_number(const std::string& text, const std::string& shown) {
  const Parsed<double> number = parse_real(text);
  require(static_cast<bool>(number), ExitCode::bad_input, "{}: '{}' {}", shown, text, number.problem);
  return number.value;
}

std::string yaml_for(std::string_view path, const std::string& text, const std::string& shown) {
  const Key* key = find_key(path);
  LLMTRAIN_CHECK(key != nullptr);
  Deck deck;
  const ValueRef slot = key->slot(deck);
  if (std::holds_alternative<std::string*>(slot)) return quote_yaml(one_line(text));
  if (std::holds_alternative<double*>(slot)) return format_real(real_number(text, shown));
  if (std::holds_alternative<bool*>(slot)) {
    require(text == "true" || text == "false", ExitCode::bad_input, "{}: '{}' is neither true nor false", shown, text);
    return text;
  }
  return std::to_string(whole_number(text, shown));
}

}  // namespace llmtrain
