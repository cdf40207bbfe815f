// SPDX-License-Identifier: Apache-2.0
/// Version numbers out of digits and sentences.
#include "llmtrain/backend/software.hpp"

#include <fmt/format.h>

#include <regex>

namespace llmtrain {

std::string describe_software(std::span<const SoftwareVersion> versions) {
  std::string running, others;
  for (const SoftwareVersion& v : versions) {
    running += fmt::format("{}{} {}", running.empty() ? "" : ", ", v.name, v.running);
    if (v.built.empty() || v.built == v.running) continue;
    others += fmt::format("{}{} {}", others.empty() ? "; built with " : ", ", v.name, v.built);
  }
  return running + others;
}

std::string of_digits(std::int64_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string driver_version(const std::string& text) {
  std::smatch found;
  const std::regex number(R"(NVRM version:.*?\s(\d+\.\d+(\.\d+)?)\s)");
  return std::regex_search(text, found, number) ? found[1].str() : "unknown";
}

}  // namespace llmtrain
