// SPDX-License-Identifier: Apache-2.0
/// Numbers as decks write them, by std::from_chars and an exact decimal shift.
#include "llmtrain/config/numbers.hpp"

#include <array>
#include <charconv>
#include <optional>

namespace llmtrain {
namespace {

constexpr std::string_view digits_set = "0123456789";

/// sign, digits of the mantissa without its point, and the power of ten that the last digit counts.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

/// Takes leading digits off `text`.
std::string_view take_digits(std::string_view& text) {
  const std::size_t end = std::min(text.find_first_not_of(digits_set), text.size());
  const std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  return digits;
}

/// Why `text` (sign removed) cannot be a decimal number although it resembles one; empty if there is nothing to say.
std::string special_form(std::string_view text) {
  const std::string word = lower(text.starts_with('.') ? text.substr(1) : text);
  if (word == "nan" || word == "inf" || word == "infinity") return "is not a finite number";
  if (word.starts_with("0x") || word.starts_with("0o") || word.starts_with("0b")) {
    return "is not a decimal number; hexadecimal, octal and binary are not read";
  }
  if (text.size() > 1 && text[0] == '0' && digits_set.find(text[1]) != std::string_view::npos) {
    return "has a leading zero, which some YAML readers take for octal; write it without";
  }
  return {};
}

/// Splits a decimal text; nullopt with `problem` set when it is not one.
std::optional<Decimal> split(std::string_view text, std::string& problem) {
  Decimal out;
  std::string_view rest = text;
  if (rest.starts_with('-') || rest.starts_with('+')) {
    out.negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  problem = special_form(rest);
  if (!problem.empty()) return std::nullopt;
  problem = "is not a number";
  const std::string_view whole = take_digits(rest);
  std::string_view fraction;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    fraction = take_digits(rest);
  }
  if (whole.empty() && fraction.empty()) return std::nullopt;
  out.digits = std::string(whole) + std::string(fraction);
  if (rest.starts_with('e') || rest.starts_with('E')) {
    rest.remove_prefix(1);
    bool down = false;
    if (rest.starts_with('-') || rest.starts_with('+')) {
      down = rest[0] == '-';
      rest.remove_prefix(1);
    }
    const std::string_view power = take_digits(rest);
    if (power.empty()) return std::nullopt;
    std::int64_t value = 0;
    const auto [end, code] = std::from_chars(power.data(), power.data() + power.size(), value);
    if (code != std::errc() || value > 1'000'000) value = 1'000'000;  // beyond every range either way
    out.exponent = down ? -value : value;
  }
  if (!rest.empty()) return std::nullopt;
  out.exponent -= static_cast<std::int64_t>(fraction.size());
  problem.clear();
  return out;
}

}  // namespace

Parsed<std::int64_t> parse_integer(std::string_view text) {
  Parsed<std::int64_t> out;
  std::optional<Decimal> number = split(text, out.problem);
  if (!number) return out;
  std::string& digits = number->digits;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return out;
  while (digits.back() == '0') {
    digits.pop_back();
    ++number->exponent;
  }
  if (number->exponent < 0) {
    out.problem = "is not a whole number";
    return out;
  }
  const bool fits = static_cast<std::int64_t>(digits.size()) + number->exponent <= 19;
  if (fits) digits.append(static_cast<std::size_t>(number->exponent), '0');
  if (number->negative) digits.insert(0, 1, '-');
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), out.value);
  if (!fits || code != std::errc()) out.problem = "does not fit in 64 bits";
  return out;
}

Parsed<double> parse_real(std::string_view text) {
  Parsed<double> out;
  if (!split(text, out.problem)) return out;
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out.value);
  if (code != std::errc() || end != text.data() + text.size()) {
    out.problem = "is outside the range of double precision";
  }
  return out;
}

Parsed<double> parse_duration(std::string_view text) {
  if (text.find(':') == std::string_view::npos) return parse_real(text);
  Parsed<double> out;
  out.problem = "is neither seconds nor H:MM:SS";
  std::string_view rest = text;
  std::array<std::int64_t, 3> parts{};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string_view digits = take_digits(rest);
    const bool length_ok = i == 0 ? !digits.empty() && digits.size() <= 9 : digits.size() == 2;
    if (!length_ok) return out;
    std::from_chars(digits.data(), digits.data() + digits.size(), parts[i]);
    if (i > 0 && parts[i] > 59) return out;
    if (i < 2) {
      if (!rest.starts_with(':')) return out;
      rest.remove_prefix(1);
    }
  }
  if (!rest.empty()) return out;
  out.problem.clear();
  out.value = static_cast<double>((parts[0] * 60 + parts[1]) * 60 + parts[2]);
  return out;
}

std::string format_real(double value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), result.ptr);
  const std::size_t e = text.find('e');
  if (e == std::string::npos) return text;
  // 3e-05 -> 3e-5, 1e+06 -> 1e6
  std::size_t first = e + 1;
  const bool down = text[first] == '-';
  if (down || text[first] == '+') ++first;
  while (first + 1 < text.size() && text[first] == '0') ++first;
  return text.substr(0, e + 1) + (down ? "-" : "") + text.substr(first);
}

}  // namespace llmtrain
