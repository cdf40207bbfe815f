// SPDX-License-Identifier: Apache-2.0
/// UTF-8 characters and the classes by which patterns tell them apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llmtrain {

/// Classes of a character, as bits; Unicode 16, as in the regular expressions of the original tokenizers.
enum CharClass : std::uint8_t {
  letter = 1,       ///< \p{L}
  number = 2,       ///< \p{N}
  space = 4,        ///< \s
  upper = 8,        ///< [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  lower = 16,       ///< [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  word = 32,        ///< \w
  nfc_open = 64,    ///< a text that holds one may not be in NFC
  nfc_fixed = 128,  ///< of characters: not known to the NFC of `tokenizers`, whose tables are older: it stays as it is
  not_ascii = 128   ///< of bytes: look at the whole character
};

/// A character's classes and its length; a byte that is not UTF-8 is a character of its own, of no class.
struct Char {
  std::uint8_t classes;
  std::uint8_t bytes;
};

inline constexpr std::size_t class_range_count = 3710;
/// First code point << 8 | classes, of each range of equal classes.
extern const std::array<std::uint32_t, class_range_count> class_ranges;

/// Classes of all code points in blocks of 256, equal blocks stored once.
class CharClasses {
 public:
  static const CharClasses& instance();

  std::uint8_t of_byte(char byte) const { return bytes_[static_cast<unsigned char>(byte)]; }
  std::uint8_t of_code(std::uint32_t code) const { return blocks_[first_[code >> 8] + (code & 255)]; }

  /// The character that begins at `at`; at < end.
  Char at(const char* at, const char* end) const {
    const std::uint8_t classes = of_byte(*at);
    return classes != not_ascii ? Char{classes, 1} : beyond_ascii(at, end);
  }

 private:
  CharClasses();
  Char beyond_ascii(const char* at, const char* end) const;

  std::array<std::uint8_t, 256> bytes_{};
  std::array<std::uint32_t, 0x1100> first_{};  ///< [code point / 256]: where its block begins
  std::vector<std::uint8_t> blocks_;
};

/// Length of the valid UTF-8 character at `at` (at < end), 1 to 4; 0 if there is none.
std::size_t utf8_bytes(const char* at, const char* end);

/// The code point of a valid character of `bytes` bytes.
std::uint32_t utf8_code(const char* at, std::size_t bytes);

/// Appends the code point as UTF-8.
void append_utf8(std::uint32_t code, std::string& text);

}  // namespace llmtrain
