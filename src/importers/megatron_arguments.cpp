// SPDX-License-Identifier: Apache-2.0
/// Takes a Megatron-LM command apart into arguments, each looked up in the table.
#include "megatron_arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "llmtrain/base/error.hpp"
#include "llmtrain/config/numbers.hpp"
#include "llmtrain/config/suggest.hpp"

namespace llmtrain {

std::vector<std::span<const ImportRow>> megatron_rows() {
  return {megatron::model_rows(), megatron::training_rows(), megatron::system_rows(), megatron::other_rows()};
}

namespace megatron {
namespace {

using RowIndex = std::map<std::string_view, const ImportRow*>;

const RowIndex& row_index() {
  static const RowIndex index = [] {
    RowIndex out;
    for (const auto rows : megatron_rows()) {
      for (const ImportRow& row : rows) {
        const bool is_new = out.emplace(row.name, &row).second;
        LLMTRAIN_CHECK(is_new);
      }
    }
    return out;
  }();
  return index;
}

const Misspelt* find_misspelt(std::string_view name) {
  for (const Misspelt& row : misspelt()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::string nearest_argument(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [known, row] : row_index()) names.emplace_back(known);
  return nearest(name, names);
}

std::string joined(std::string_view name, const std::vector<std::string>& words) {
  return words.empty() ? fmt::format("--{}", name) : fmt::format("--{} {}", name, fmt::join(words, " "));
}

/// Quotes that a shell variable carried into a word: '949,50,1'.
std::string without_quotes(std::string word) {
  const bool quoted = word.size() >= 2 && (word.front() == '\'' || word.front() == '"') && word.back() == word.front();
  return quoted ? word.substr(1, word.size() - 2) : word;
}

/// Whether a value asks for what `usual` says.
bool is_usual(const std::vector<std::string>& words, std::string_view usual) {
  if (words.size() != 1 || usual.empty()) return false;
  const Parsed<double> value = parse_real(words.front());
  const Parsed<double> other = parse_real(usual);
  return value && other ? value.value == other.value : words.front() == usual;
}

}  // namespace

const ImportRow* find_row(std::string_view name) {
  const auto found = row_index().find(name);
  return found == row_index().end() ? nullptr : found->second;
}

Arguments::Arguments(const std::vector<std::string>& words, DeckDraft& draft) : draft_(draft) {
  for (std::size_t i = 0; i < words.size();) {
    if (!words[i].starts_with("--")) {
      draft.note({Fate::unknown, words[i], words[i], "stands where an argument is expected; nothing was done"});
      ++i;
      continue;
    }
    const std::size_t equals = words[i].find('=');
    const std::string name = words[i].substr(2, equals == std::string::npos ? equals : equals - 2);
    std::vector<std::string> values;
    if (equals != std::string::npos) values.push_back(without_quotes(words[i].substr(equals + 1)));
    const ImportRow* row = find_row(name);
    const Misspelt* wrong = row == nullptr ? find_misspelt(name) : nullptr;
    const ImportRow* like = wrong != nullptr && wrong->read ? find_row(wrong->real) : row;
    // An unknown argument takes all words up to the next one: they cannot be arguments.
    const bool with_value = wrong != nullptr && !wrong->value.empty();
    const Takes takes = with_value ? Takes::nothing : like == nullptr ? Takes::many : like->takes;
    for (++i; i < words.size() && !words[i].starts_with("--"); ++i) {
      if (takes == Takes::nothing || (takes == Takes::one && !values.empty())) break;
      values.push_back(without_quotes(words[i]));
    }
    if (like == nullptr || wrong != nullptr) unknown(name, values);
    if (with_value && values.empty()) values.emplace_back(wrong->value);
    if (like != nullptr) take(*like, std::move(values));
  }
  note_rows(draft);
}

/// Says what an unknown name was taken for, or what comes nearest to it.
void Arguments::unknown(std::string_view name, const std::vector<std::string>& words) {
  std::string text;
  if (const Misspelt* wrong = find_misspelt(name)) {
    text = fmt::format("Megatron-LM has no such argument: {}", wrong->text);
    if (wrong->read && std::string_view(wrong->real) == "num-query-groups") {
      values_.try_emplace("group-query-attention");
    }
  } else {
    const std::string near = nearest_argument(name);
    text = near.empty() ? "Megatron-LM has no such argument, nor one like it; nothing was done"
                        : fmt::format("Megatron-LM has no such argument; the nearest is --{}; nothing was done", near);
  }
  draft_.note({Fate::unknown, std::string(name), joined(name, words), std::move(text)});
}

void Arguments::take(const ImportRow& row, std::vector<std::string> words) {
  require(row.takes != Takes::one || !words.empty(), ExitCode::bad_input, "--{}: its value is missing", row.name);
  require(row.takes != Takes::nothing || words.empty(), ExitCode::bad_input, "--{} takes no value, but '{}' is given",
          row.name, words.empty() ? "" : words.front());
  const auto [place, is_new] = values_.try_emplace(std::string(row.name), words);
  if (!is_new && place->second != words) {
    draft_.note({Fate::translated, std::string(row.name), joined(row.name, place->second),
                 "given again as " + joined(row.name, words) + ", which counts, as in Megatron"});
    place->second = std::move(words);
  }
}

void Arguments::note_rows(DeckDraft& draft) const {
  for (const auto& [name, words] : values_) {
    const ImportRow& row = *find_row(name);
    ImportNote note{Fate::translated, name, joined(name, words), std::string(row.text)};
    if (row.kind == RowKind::not_applicable) note.fate = Fate::not_applicable;
    if (row.kind == RowKind::unsupported) {
      const bool usual = is_usual(words, row.usual);
      note.fate = usual ? Fate::not_applicable : Fate::unsupported;
      if (usual) note.text = "this is what llmtrain does";
    }
    draft.note(std::move(note));
  }
}

const std::vector<std::string>& Arguments::words(std::string_view name) const {
  static const std::vector<std::string> none;
  LLMTRAIN_CHECK(find_row(name) != nullptr);
  const auto found = values_.find(name);
  return found == values_.end() ? none : found->second;
}

std::string Arguments::text(std::string_view name, std::string_view fallback) const {
  return words(name).empty() ? std::string(fallback) : words(name).front();
}

std::int64_t Arguments::integer(std::string_view name, std::int64_t fallback) const {
  return words(name).empty() ? fallback : whole_number(words(name).front(), shown(name));
}

double Arguments::real(std::string_view name, double fallback) const {
  return words(name).empty() ? fallback : real_number(words(name).front(), shown(name));
}

std::string Arguments::shown(std::string_view name) const {
  return given(name) ? joined(name, words(name)) : fmt::format("Megatron's default (--{} absent)", name);
}

std::string_view Arguments::which(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    if (given(name)) return name;
  }
  return *names.begin();
}

std::int64_t Translation::data_ranks() const {
  const std::int64_t model = args.integer("tensor-model-parallel-size", args.integer("model-parallel-size", 1)) *
                             args.integer("pipeline-model-parallel-size", 1);
  return ranks > 0 && model > 0 ? ranks / model : 0;
}

}  // namespace megatron
}  // namespace llmtrain
