// SPDX-License-Identifier: Apache-2.0
/// A small JSON writer: objects and arrays on one line, built in the order in which members are added.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace llmtrain {

/// `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD, so the output is always valid.
std::string json_string(std::string_view text);

/// A JSON number by shortest round trip; null when not finite, because JSON has no such number.
std::string json_number(double value);

namespace detail {

/// A comma-separated list that grows between one pair of brackets.
class JsonList {
 public:
  void append(std::string_view text);
  void append_member(std::string_view key, std::string_view text);
  std::string enclosed(char open, char close) const { return open + body_ + close; }

 private:
  std::string body_;
};

template <class T>
concept JsonInteger = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>;

template <class T>
concept JsonContainer = requires(const T& value) {
  { value.text() } -> std::same_as<std::string>;
};

inline std::string to_json(double value) { return json_number(value); }
inline std::string to_json(std::string_view value) { return json_string(value); }
inline std::string to_json(const char* value) { return json_string(value); }
inline std::string to_json(std::same_as<bool> auto value) { return value ? "true" : "false"; }
inline std::string to_json(JsonInteger auto value) { return std::to_string(value); }
inline std::string to_json(const JsonContainer auto& value) { return value.text(); }

}  // namespace detail

/// `[1, "two", {...}]`; elements are numbers, bool, text, JsonObject or JsonArray.
class JsonArray {
 public:
  template <class T>
  JsonArray& add(const T& value) {
    list_.append(detail::to_json(value));
    return *this;
  }
  std::string text() const { return list_.enclosed('[', ']'); }

 private:
  detail::JsonList list_;
};

/// `{"key": value, ...}` on one line; keys are not checked for repetition.
class JsonObject {
 public:
  template <class T>
  JsonObject& add(std::string_view key, const T& value) {
    list_.append_member(key, detail::to_json(value));
    return *this;
  }
  std::string text() const { return list_.enclosed('{', '}'); }

 private:
  detail::JsonList list_;
};

}  // namespace llmtrain
