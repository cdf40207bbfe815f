// SPDX-License-Identifier: Apache-2.0
/// Checks of a deck's bytes.
#include "bytes.hpp"

#include <fmt/format.h>

#include <cstdint>

namespace llmtrain {
namespace {

constexpr std::size_t max_bytes = std::size_t{1} << 20;

std::string without_mark_and_cr(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out.push_back(text[i]);
  }
  return out;
}

/// What is wrong with the character at `at`; empty if nothing. `length` is set to its bytes.
std::string character_problem(std::string_view text, std::size_t at, bool indentation, std::size_t& length) {
  const auto byte = static_cast<unsigned char>(text[at]);
  length = utf8_length(text, at);
  if (length == 0) return fmt::format("byte 0x{:02x} is not valid UTF-8; save the deck as UTF-8", byte);
  if (byte == '\t' && indentation) return "a tab is used as indentation; YAML allows spaces only";
  if (byte == '\r') return "a carriage return without a line feed; save the deck with LF or CRLF line ends";
  const bool control = byte < 0x20 && byte != '\t' && byte != '\n';
  if (control || byte == 0x7f) return fmt::format("control character 0x{:02x}", byte);
  return {};
}

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  std::uint32_t code = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0U) != 0x80U) return 0;
    code = code << 6U | (byte(at + i) & 0x3FU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return overlong || surrogate || code > 0x10FFFF ? 0 : length;
}

std::string checked_bytes(std::string_view text, const std::string& source, bool command_line, Findings& findings) {
  if (text.size() > max_bytes) {
    findings.add(fmt::format("{}: larger than 1 MiB; that is no deck", source));
    return {};
  }
  std::string clean = without_mark_and_cr(text);
  std::size_t line = 1;
  std::size_t line_start = 0;
  bool indentation = true;
  std::size_t length = 1;
  for (std::size_t at = 0; at < clean.size(); at += length) {
    const std::string problem = character_problem(clean, at, indentation, length);
    if (!problem.empty()) {
      findings.add(command_line ? fmt::format("{}: {}", source, problem)
                                : fmt::format("{}:{}:{}: {}", source, line, at - line_start + 1, problem));
      return {};
    }
    if (clean[at] == '\n') {
      ++line;
      line_start = at + 1;
      indentation = true;
    } else if (clean[at] != ' ') {
      indentation = false;
    }
  }
  return clean;
}

}  // namespace llmtrain
