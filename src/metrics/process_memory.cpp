// SPDX-License-Identifier: Apache-2.0
/// Reads two small files of /proc.
#include "llmtrain/metrics/process_memory.hpp"

#include <unistd.h>

#include <charconv>
#include <string>
#include <string_view>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"

namespace llmtrain {

namespace {

/// The file's text, empty where there is no such file.
std::string read_if_there(const char* path) {
  try {
    return read_file(path);
  } catch (const Error&) {
    return {};
  }
}

/// The first integer at or after `at`, 0 if there is none.
std::int64_t integer_after(std::string_view text, std::size_t at) {
  at = text.find_first_of("0123456789", at);
  std::int64_t value = 0;
  if (at != std::string_view::npos) std::from_chars(text.data() + at, text.data() + text.size(), value);
  return value;
}

}  // namespace

std::int64_t resident_bytes() {
  const std::string text = read_if_there("/proc/self/statm");  // pages: size resident shared ...
  const std::size_t second = text.find(' ');
  return second == std::string::npos ? 0 : integer_after(text, second) * ::sysconf(_SC_PAGESIZE);
}

std::int64_t peak_resident_bytes() {
  const std::string text = read_if_there("/proc/self/status");
  const std::size_t at = text.find("VmHWM:");
  return at == std::string::npos ? 0 : integer_after(text, at) * 1024;
}

}  // namespace llmtrain
