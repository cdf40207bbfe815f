// SPDX-License-Identifier: Apache-2.0
/// The characters that stand for bytes in vocab.json, merges.txt and tokenizer.json: printable Latin-1 for itself, the
/// other 68 bytes in rising order from U+0100 on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace llmtrain {

std::uint32_t character_of_byte(unsigned char byte);

/// The bytes that a token's characters stand for; nothing if one of them stands for none.
std::optional<std::string> bytes_of_characters(std::string_view characters);

/// The reverse.
std::string characters_of_bytes(std::string_view bytes);

}  // namespace llmtrain
