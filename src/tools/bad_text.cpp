// SPDX-License-Identifier: Apache-2.0
/// Finds and replaces what is not Unicode in a line of JSON: bytes that are not UTF-8, escapes that are half a pair.
#include <algorithm>

#include "llmtrain/tools/json_lines.hpp"

namespace llmtrain {
namespace {

constexpr std::size_t escape_bytes = 6;  // \uXXXX

/// The number of the escape \uXXXX at the start of `text`, or -1.
int unicode_escape(std::string_view text) {
  if (text.size() < escape_bytes || !text.starts_with("\\u")) return -1;
  int number = 0;
  for (const char c : text.substr(2, 4)) {
    const char lower = static_cast<char>(c | 0x20);
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (lower < 'a' || lower > 'f')) return -1;
    number = number * 16 + (digit ? c - '0' : lower - 'a' + 10);
  }
  return number;
}

bool is_high(int number) { return number >= 0xD800 && number < 0xDC00; }
bool is_low(int number) { return number >= 0xDC00 && number < 0xE000; }

}  // namespace

int utf8_step(std::string_view text) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  int bytes = 0;
  unsigned low = 0x80, high = 0xBF;  // of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) {
    bytes = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    bytes = 3;
    low = lead == 0xE0 ? 0xA0 : 0x80;
    high = lead == 0xED ? 0x9F : 0xBF;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    bytes = 4;
    low = lead == 0xF0 ? 0x90 : 0x80;
    high = lead == 0xF4 ? 0x8F : 0xBF;
  } else {
    return -1;
  }
  for (int i = 1; i < bytes; ++i) {
    const unsigned next = byte(static_cast<std::size_t>(i));
    if (next < low || next > high) return -i;
    low = 0x80;
    high = 0xBF;
  }
  return bytes;
}

BadPlace find_bad_text(std::string_view line, std::size_t from) {
  for (std::size_t at = from; at < line.size();) {
    if (line[at] != '\\') {
      const int bytes = utf8_step(line.substr(at));
      if (bytes < 0) return {at, static_cast<std::size_t>(-bytes), false};
      at += static_cast<std::size_t>(bytes);
      continue;
    }
    const int number = unicode_escape(line.substr(at));
    if (is_high(number) && is_low(unicode_escape(line.substr(at + escape_bytes)))) {
      at += 2 * escape_bytes;
    } else if (is_high(number) || is_low(number)) {
      return {at, escape_bytes, true};
    } else {
      // What is escaped belongs to the backslash, above all another one; but bytes that are not UTF-8 are looked at.
      const bool ascii = at + 1 < line.size() && static_cast<unsigned char>(line[at + 1]) < 0x80;
      at += ascii ? 2 : 1;
    }
  }
  return {};
}

std::string replace_bad_text(std::string_view line) {
  std::string good;
  good.reserve(line.size() + 64);
  std::size_t at = 0;
  for (BadPlace bad = find_bad_text(line); bad.at != std::string_view::npos; bad = find_bad_text(line, at)) {
    good += line.substr(at, bad.at - at);
    good += bad.escape ? "\\ufffd" : "\xEF\xBF\xBD";
    at = bad.at + bad.bytes;
  }
  good += line.substr(at);
  return good;
}

}  // namespace llmtrain
