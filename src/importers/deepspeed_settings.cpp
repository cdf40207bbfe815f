// SPDX-License-Identifier: Apache-2.0
/// Reads a DeepSpeed file and looks each of its keys up in the table.
#include "deepspeed_settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>

#include "llmtrain/base/error.hpp"
#include "llmtrain/config/numbers.hpp"
#include "llmtrain/config/suggest.hpp"

namespace llmtrain {

std::vector<std::span<const ImportRow>> deepspeed_rows() { return {deepspeed::core_rows(), deepspeed::other_rows()}; }

namespace deepspeed {
namespace {

namespace dom = simdjson::dom;

std::string scalar_text(const dom::element& value) {
  switch (value.type()) {
    case dom::element_type::STRING: return std::string(value.get_string().value_unsafe());
    case dom::element_type::BOOL: return value.get_bool().value_unsafe() ? "true" : "false";
    case dom::element_type::DOUBLE: return format_real(value.get_double().value_unsafe());
    case dom::element_type::NULL_VALUE: return "null";
    default: return simdjson::to_string(value);
  }
}

class Reader {
 public:
  Reader(const std::string& name, std::map<std::string, Value, std::less<>>& values) : name_(name), values_(values) {}

  /// Every value that is no object by its full name; objects without members too.
  void read(const dom::element& value, const std::string& path) {
    dom::object object;
    if (value.get(object) == simdjson::SUCCESS && (path.empty() || object.size() > 0)) {
      for (const auto member : object) {
        const std::string key(member.key);
        read(member.value, path.empty() ? key : path + "." + key);
      }
      return;
    }
    Value out;
    dom::array array;
    if (value.get(array) == simdjson::SUCCESS) {
      for (const dom::element item : array) out.items.push_back(scalar_text(item));
    } else {
      out.items.push_back(scalar_text(value));
    }
    out.shown = fmt::format("{} {}", path, simdjson::to_string(value));
    require(values_.emplace(path, std::move(out)).second, ExitCode::bad_input, "{}: '{}' is there twice", name_, path);
  }

 private:
  const std::string& name_;
  std::map<std::string, Value, std::less<>>& values_;
};

std::string nearest_key(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  const std::string parent(dot == std::string_view::npos ? "" : name.substr(0, dot + 1));
  std::vector<std::string> siblings, all;
  for (const auto rows : deepspeed_rows()) {
    for (const ImportRow& row : rows) {
      if (row.name.ends_with(".*")) continue;
      all.emplace_back(row.name);
      if (row.name.starts_with(parent)) siblings.emplace_back(row.name.substr(parent.size()));
    }
  }
  const std::string near = nearest(name.substr(parent.size()), siblings);
  return near.empty() ? nearest(name, all) : parent + near;
}

bool is_usual(const Value& value, std::string_view usual) {
  if (usual.empty() || value.items.size() != 1) return false;
  const Parsed<double> number = parse_real(value.items.front()), other = parse_real(usual);
  return number && other ? number.value == other.value : value.items.front() == usual;
}

}  // namespace

const ImportRow* find_row(std::string_view name) {
  const ImportRow* block = nullptr;
  for (const auto rows : deepspeed_rows()) {
    for (const ImportRow& row : rows) {
      if (row.name == name) return &row;
      const bool covers = row.name.ends_with(".*") && name.starts_with(row.name.substr(0, row.name.size() - 1));
      if (covers) block = &row;
    }
  }
  return block;
}

Settings::Settings(std::string_view json, const std::string& name, bool sized, DeckDraft& draft) : sized_(sized) {
  dom::parser parser;
  dom::element root;
  const simdjson::padded_string padded(json);
  const simdjson::error_code error = parser.parse(padded).get(root);
  require(error == simdjson::SUCCESS, ExitCode::bad_input, "{}: not valid JSON: {} (comments are not read)", name,
          simdjson::error_message(error));
  require(root.is_object(), ExitCode::bad_input, "{}: a JSON object of DeepSpeed's keys is needed", name);
  std::map<std::string, Value, std::less<>> all;
  Reader(name, all).read(root, "");
  for (const auto& [path, value] : all) note(path, value, draft);
}

bool Settings::follows(std::string_view name) const {
  return name == "gradient_accumulation_steps" ||
         (sized_ && (name.ends_with("reduce_bucket_size") || name.ends_with("prefetch_bucket_size") ||
                     name.ends_with("param_persistence_threshold")));
}

void Settings::note(const std::string& name, const Value& value, DeckDraft& draft) {
  const ImportRow* row = find_row(name);
  ImportNote out{Fate::translated, name, value.shown, row == nullptr ? "" : std::string(row->text)};
  const bool absent = value.items.size() == 1 && (value.items.front() == "auto" || value.items.front() == "null");
  if (row == nullptr) {
    const std::string near = nearest_key(name);
    out.fate = Fate::unknown;
    out.text = near.empty() ? "DeepSpeed has no such key, nor one like it; nothing was done"
                            : fmt::format("DeepSpeed has no such key; the nearest is {}; nothing was done", near);
  } else if (row->kind == RowKind::not_applicable) {
    out.fate = Fate::not_applicable;
  } else if (absent && value.items.front() == "auto" && !follows(name)) {
    out.fate = Fate::open;
    out.text = fmt::format("the program that calls DeepSpeed fills it in ({})", row->text);
  } else if (row->kind == RowKind::unsupported) {
    const bool usual = absent || is_usual(value, row->usual);
    out.fate = usual ? Fate::not_applicable : Fate::unsupported;
    if (usual) out.text = "this is what llmtrain does";
  }
  draft.note(std::move(out));
  if (row != nullptr) (absent ? automatic_ : values_).emplace(name, value);
}

bool Settings::any_below(std::string_view prefix) const {
  const auto first = values_.lower_bound(prefix);
  return first != values_.end() && first->first.starts_with(prefix);
}

const std::vector<std::string>& Settings::items(std::string_view name) const {
  static const std::vector<std::string> none;
  LLMTRAIN_CHECK(find_row(name) != nullptr);
  const auto found = values_.find(name);
  return found == values_.end() ? none : found->second.items;
}

std::string Settings::text(std::string_view name, std::string_view fallback) const {
  return items(name).empty() ? std::string(fallback) : items(name).front();
}

std::int64_t Settings::integer(std::string_view name, std::int64_t fallback) const {
  return items(name).empty() ? fallback : whole_number(items(name).front(), shown(name));
}

double Settings::real(std::string_view name, double fallback) const {
  return items(name).empty() ? fallback : real_number(items(name).front(), shown(name));
}

bool Settings::truth(std::string_view name, bool fallback) const {
  const std::string value = text(name, fallback ? "true" : "false");
  require(value == "true" || value == "false", ExitCode::bad_input, "{}: it is neither true nor false", shown(name));
  return value == "true";
}

std::string Settings::shown(std::string_view name) const {
  for (const auto* values : {&values_, &automatic_}) {
    const auto found = values->find(name);
    if (found != values->end()) return found->second.shown;
  }
  return fmt::format("DeepSpeed's default ({} absent)", name);
}

std::string_view Settings::which(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    if (given(name)) return name;
  }
  return *names.begin();
}

}  // namespace deepspeed
}  // namespace llmtrain
