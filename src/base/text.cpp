// SPDX-License-Identifier: Apache-2.0
/// Number formatting by std::to_chars and fmt, which both ignore the locale; lines.
#include "llmtrain/base/text.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <sstream>

#include <fmt/format.h>

namespace llmtrain {

namespace {

struct Scaled {
  double value;
  std::size_t unit;
};

/// Divides by `base` until fewer than `limit` remain; `limit` is where rounding would print one digit too many.
Scaled scale(double value, double base, double limit, std::size_t units) {
  Scaled scaled{value, 0};
  while (std::abs(scaled.value) >= limit && scaled.unit + 1 < units) {
    scaled.value /= base;
    ++scaled.unit;
  }
  return scaled;
}

/// `digits` significant digits without an exponent, for magnitudes below 10^digits.
std::string significant(double value, int digits) {
  int before_point = 1;
  // Half a unit of the last digit: 9.996 prints as 10.0, not as 10.00.
  for (double bound = 10; before_point < digits && std::abs(value) >= bound * (1 - 0.5 * std::pow(10.0, -digits));
       bound *= 10)
    ++before_point;
  return fmt::format("{:.{}f}", value, digits - before_point);
}

}  // namespace

std::string shortest(double value) {
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return error == std::errc() ? std::string(buffer.data(), end) : std::string("nan");
}

std::string human_bytes(std::int64_t bytes) {
  static constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes > -1024 && bytes < 1024) return fmt::format("{} B", bytes);
  const Scaled scaled = scale(static_cast<double>(bytes), 1024, 1023.5, units.size());
  // 1000 to 1023 of a unit take four digits.
  const bool four = std::abs(scaled.value) >= 999.5;
  return fmt::format("{} {}", four ? fmt::format("{:.0f}", scaled.value) : significant(scaled.value, 3),
                     units[scaled.unit]);
}

std::string human_count(std::int64_t count) {
  static constexpr std::array units = {"", "k", "M", "B", "T", "Q"};
  if (count > -1000 && count < 1000) return fmt::format("{}", count);
  const Scaled scaled = scale(static_cast<double>(count), 1000, 999.5, units.size());
  return fmt::format("{} {}", significant(scaled.value, 3), units[scaled.unit]);
}

std::string si(double value, const std::string& unit) {
  static constexpr std::array prefixes = {"", "k", "M", "G", "T", "P", "E", "Z"};
  if (!std::isfinite(value)) return fmt::format("{} {}", value, unit);
  const Scaled scaled = scale(value, 1000, 999.95, prefixes.size());
  return fmt::format("{} {}{}", significant(scaled.value, 4), prefixes[scaled.unit], unit);
}

std::string grouped(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e15) return "-:--:--";
  const std::int64_t total = std::llround(seconds);
  return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::map<std::string, std::string> fields_of(const std::string& text) {
  std::map<std::string, std::string> fields;
  for (const std::string& line : lines_of(text)) {
    const auto space = line.find(' ');
    if (space != std::string::npos) fields[line.substr(0, space)] = line.substr(space + 1);
  }
  return fields;
}

}  // namespace llmtrain
