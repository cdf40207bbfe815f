// SPDX-License-Identifier: Apache-2.0
/// Escaping and number text of the JSON writer.
#include "llmtrain/base/json.hpp"

#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "llmtrain/base/text.hpp"

namespace llmtrain {

namespace {

bool is_continuation(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
}

/// Length of the well-formed UTF-8 sequence at `at`, or 0 (overlong, surrogate, above U+10FFFF, cut short).
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return 1;
  if (!is_continuation(text, at + 1)) return 0;
  const auto second = static_cast<unsigned char>(text[at + 1]);
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (!is_continuation(text, at + 2)) return 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool overlong = lead == 0xE0 && second < 0xA0;
    const bool surrogate = lead == 0xED && second >= 0xA0;
    return overlong || surrogate ? 0 : 3;
  }
  if (!is_continuation(text, at + 3) || lead < 0xF0 || lead > 0xF4) return 0;
  const bool overlong = lead == 0xF0 && second < 0x90;
  const bool too_large = lead == 0xF4 && second >= 0x90;
  return overlong || too_large ? 0 : 4;
}

void append_ascii(std::string& out, char c) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  const auto code = static_cast<unsigned char>(c);
  if (code < 0x20 || code == 0x7F) {
    out += fmt::format("\\u{:04x}", code);
  } else {
    out += c;
  }
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0) {
      out += "\\ufffd";
      ++at;
    } else if (length == 1) {
      append_ascii(out, text[at++]);
    } else {
      out += text.substr(at, length);
      at += length;
    }
  }
  return out + '"';
}

std::string json_number(double value) { return std::isfinite(value) ? shortest(value) : "null"; }

void detail::JsonList::append(std::string_view text) {
  if (!body_.empty()) body_ += ", ";
  body_ += text;
}

void detail::JsonList::append_member(std::string_view key, std::string_view text) {
  append(json_string(key));
  body_ += ": ";
  body_ += text;
}

}  // namespace llmtrain
