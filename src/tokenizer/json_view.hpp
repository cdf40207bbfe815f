// SPDX-License-Identifier: Apache-2.0
/// Strict reading of JSON: what is not known, missing or of another type is an error that names its place.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llmtrain {

/// A value and its place, e.g. "tokenizer.json: model.merges[3]".
class JsonView {
 public:
  JsonView(simdjson::dom::element value, std::string place) : value_(value), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  bool is_null() const { return value_.is_null(); }
  bool is_string() const { return value_.is_string(); }
  bool is_object() const { return value_.is_object(); }

  /// Throws Error(bad_input): this place, then `problem`.
  [[noreturn]] void refuse(const std::string& problem) const;

  std::string_view string() const;
  bool boolean() const;
  std::int64_t integer() const;
  simdjson::dom::array array() const;
  simdjson::dom::object object() const;
  JsonView item(simdjson::dom::element value, std::size_t index) const;

  /// Refuses fields that are not in `known` and fields that are given twice.
  void know_fields(std::initializer_list<std::string_view> known) const;
  JsonView field(std::string_view name) const;
  std::optional<JsonView> find(std::string_view name) const;
  /// The field, or this value where it is missing or null.
  bool boolean_or(std::string_view name, bool otherwise) const;
  /// The field is there and says something: it is neither null nor "".
  bool has(std::string_view name) const;

 private:
  JsonView at(simdjson::dom::element value, std::string_view name) const;

  simdjson::dom::element value_;
  std::string place_;
};

/// Parses `text` with `parser`, whose memory the view uses. Throws Error(bad_input) for what is no JSON, also where it nests
/// deeper than 32.
JsonView parse_json(simdjson::dom::parser& parser, std::string_view text, const std::string& name);

}  // namespace llmtrain
