// SPDX-License-Identifier: Apache-2.0
/// NFC by utf8proc, for the few texts that need it.
#include "nfc.hpp"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "llmtrain/base/error.hpp"
#include "unicode.hpp"

namespace llmtrain {
namespace {

bool is_surely_nfc(std::string_view text) {
  const CharClasses& classes = CharClasses::instance();
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    const Char c = classes.at(at, end);
    if ((c.classes & nfc_open) != 0) return false;
    at += c.bytes;
  }
  return true;
}

/// Appends the NFC of well-formed text.
void append_nfc(std::string_view text, std::string& out) {
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &made, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(made, &std::free);
  require(bytes >= 0, ExitCode::internal, "NFC of a text of {} bytes failed: {}", text.size(), utf8proc_errmsg(bytes));
  out.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes));
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& buffer) {
  if (is_surely_nfc(text)) return text;
  buffer.clear();
  const CharClasses& classes = CharClasses::instance();
  const char* end = text.data() + text.size();
  const char* done = text.data();
  for (const char* at = done; at != end;) {
    const Char c = classes.at(at, end);
    if ((c.classes & nfc_fixed) != 0 || utf8_bytes(at, end) == 0) {
      append_nfc({done, at}, buffer);
      buffer.append(at, c.bytes);
      done = at + c.bytes;
    }
    at += c.bytes;
  }
  append_nfc({done, end}, buffer);
  return buffer;
}

}  // namespace llmtrain
