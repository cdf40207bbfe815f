// SPDX-License-Identifier: Apache-2.0
/// The table of characters that stand for bytes.
#include "byte_alphabet.hpp"

#include <array>

#include "unicode.hpp"

namespace llmtrain {
namespace {

struct Alphabet {
  std::array<std::uint32_t, 256> characters{};
  std::array<std::int16_t, 0x144> bytes{};

  Alphabet() {
    bytes.fill(-1);
    std::uint32_t next = 0x100;
    for (std::uint32_t b = 0; b < 256; ++b) {
      const bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      characters[b] = itself ? b : next++;
      bytes[characters[b]] = static_cast<std::int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet made;
  return made;
}

}  // namespace

std::uint32_t character_of_byte(unsigned char byte) { return alphabet().characters[byte]; }

std::optional<std::string> bytes_of_characters(std::string_view characters) {
  std::string bytes;
  bytes.reserve(characters.size());
  const char* end = characters.data() + characters.size();
  for (const char* at = characters.data(); at != end;) {
    const std::size_t length = utf8_bytes(at, end);
    const std::uint32_t code = length == 0 ? 0 : utf8_code(at, length);
    const int byte = code < alphabet().bytes.size() ? alphabet().bytes[code] : -1;
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    at += length;
  }
  return bytes;
}

std::string characters_of_bytes(std::string_view bytes) {
  std::string characters;
  for (const char byte : bytes) append_utf8(character_of_byte(static_cast<unsigned char>(byte)), characters);
  return characters;
}

}  // namespace llmtrain
