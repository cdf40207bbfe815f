// SPDX-License-Identifier: Apache-2.0
/// The table of character classes, and UTF-8.
#include "unicode.hpp"

#include <algorithm>

namespace llmtrain {
namespace {

constexpr std::uint32_t code_points = 0x110000;

unsigned byte_at(const char* at, std::size_t i) { return static_cast<unsigned char>(at[i]); }

}  // namespace

const CharClasses& CharClasses::instance() {
  static const CharClasses classes;
  return classes;
}

CharClasses::CharClasses() {
  std::array<std::uint32_t, 256> uniform;  // [classes]: the block whose characters all have these
  uniform.fill(code_points);
  std::size_t range = 0;
  for (std::uint32_t block = 0; block < first_.size(); ++block) {
    std::array<std::uint8_t, 256> classes;
    for (std::uint32_t i = 0; i < classes.size(); ++i) {
      const std::uint32_t code = block * 256 + i;
      while (range + 1 < class_ranges.size() && class_ranges[range + 1] >> 8 <= code) ++range;
      classes[i] = static_cast<std::uint8_t>(class_ranges[range]);
    }
    const bool same = std::all_of(classes.begin(), classes.end(), [&](std::uint8_t c) { return c == classes[0]; });
    std::uint32_t fresh = static_cast<std::uint32_t>(blocks_.size());
    std::uint32_t& first = same ? uniform[classes[0]] : fresh;
    if (!same || first == code_points) {
      first = static_cast<std::uint32_t>(blocks_.size());
      blocks_.insert(blocks_.end(), classes.begin(), classes.end());
    }
    first_[block] = first;
  }
  bytes_.fill(not_ascii);
  std::copy_n(blocks_.begin() + first_[0], 128, bytes_.begin());
}

Char CharClasses::beyond_ascii(const char* at, const char* end) const {
  const std::size_t bytes = utf8_bytes(at, end);
  if (bytes == 0) return {0, 1};
  return {of_code(utf8_code(at, bytes)), static_cast<std::uint8_t>(bytes)};
}

std::size_t utf8_bytes(const char* at, const char* end) {
  const unsigned lead = byte_at(at, 0);
  if (lead < 0x80) return 1;
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || end - at < static_cast<std::ptrdiff_t>(bytes)) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte_at(at, i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = byte_at(at, 1);
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool beyond = (lead == 0xED && second > 0x9F) || (lead == 0xF4 && second > 0x8F);  // surrogates; > U+10FFFF
  return overlong || beyond ? 0 : bytes;
}

std::uint32_t utf8_code(const char* at, std::size_t bytes) {
  if (bytes == 1) return byte_at(at, 0);
  std::uint32_t code = byte_at(at, 0) & (0x7Fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) code = code << 6 | (byte_at(at, i) & 0x3F);
  return code;
}

void append_utf8(std::uint32_t code, std::string& text) {
  const auto append = [&text](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return append(code);
  if (code < 0x800) {
    append(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    append(0xE0 | code >> 12);
    append(0x80 | (code >> 6 & 0x3F));
  } else {
    append(0xF0 | code >> 18);
    append(0x80 | (code >> 12 & 0x3F));
    append(0x80 | (code >> 6 & 0x3F));
  }
  append(0x80 | (code & 0x3F));
}

}  // namespace llmtrain
