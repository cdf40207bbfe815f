// SPDX-License-Identifier: Apache-2.0
/// Typed access with places in messages.
#include "json_view.hpp"

#include <algorithm>
#include <set>

#include "llmtrain/base/error.hpp"

namespace llmtrain {
namespace {

constexpr std::size_t deepest = 32;

std::string shown(std::string_view text) { return std::string(text.substr(0, 60)) + (text.size() > 60 ? "..." : ""); }

}  // namespace

void JsonView::refuse(const std::string& problem) const { fail(ExitCode::bad_input, "{}: {}", place_, problem); }

JsonView JsonView::at(simdjson::dom::element value, std::string_view name) const {
  return {value, place_ + (place_.find(": ") == std::string::npos ? ": " : ".") + shown(name)};
}

JsonView JsonView::item(simdjson::dom::element value, std::size_t index) const {
  return {value, fmt::format("{}[{}]", place_, index)};
}

std::string_view JsonView::string() const {
  std::string_view text;
  if (value_.get(text) != simdjson::SUCCESS) refuse("is no string");
  return text;
}

bool JsonView::boolean() const {
  bool value = false;
  if (value_.get(value) != simdjson::SUCCESS) refuse("is neither true nor false");
  return value;
}

std::int64_t JsonView::integer() const {
  std::int64_t value = 0;
  if (value_.get(value) != simdjson::SUCCESS) refuse("is no whole number");
  return value;
}

simdjson::dom::array JsonView::array() const {
  simdjson::dom::array value;
  if (value_.get(value) != simdjson::SUCCESS) refuse("is no list");
  return value;
}

simdjson::dom::object JsonView::object() const {
  simdjson::dom::object value;
  if (value_.get(value) != simdjson::SUCCESS) refuse("is no object");
  return value;
}

void JsonView::know_fields(std::initializer_list<std::string_view> known) const {
  std::set<std::string_view> seen;
  for (const auto& [name, value] : object()) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      at(value, name).refuse("this field is not known here, so what it asks for would be missed");
    if (!seen.insert(name).second) at(value, name).refuse("is given twice");
  }
}

std::optional<JsonView> JsonView::find(std::string_view name) const {
  simdjson::dom::element value;
  if (object().at_key(name).get(value) != simdjson::SUCCESS) return std::nullopt;
  return at(value, name);
}

JsonView JsonView::field(std::string_view name) const {
  const auto found = find(name);
  if (!found.has_value()) refuse(fmt::format("the field '{}' is missing", name));
  return *found;
}

bool JsonView::boolean_or(std::string_view name, bool otherwise) const {
  return has(name) ? find(name)->boolean() : otherwise;
}

bool JsonView::has(std::string_view name) const {
  const auto found = find(name);
  return found.has_value() && !found->is_null() && !(found->is_string() && found->string().empty());
}

JsonView parse_json(simdjson::dom::parser& parser, std::string_view text, const std::string& name) {
  simdjson::dom::element root;
  simdjson::error_code error = parser.allocate(std::max<std::size_t>(text.size(), 32), deepest);
  if (error == simdjson::SUCCESS) error = parser.parse(text.data(), text.size()).get(root);
  require(error == simdjson::SUCCESS, ExitCode::bad_input, "{}: is no JSON that can be read: {}", name,
          simdjson::error_message(error));
  return {root, name};
}

}  // namespace llmtrain
