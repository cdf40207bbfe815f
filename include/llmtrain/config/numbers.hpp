// SPDX-License-Identifier: Apache-2.0
/// Numbers as decks write them: exact, independent of the locale, with a reason when a text is not one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace llmtrain {

/// A number, or what is wrong with its text (a clause such as "is not a number"; empty when it is one).
template <class T>
struct Parsed {
  T value = 0;
  std::string problem;
  explicit operator bool() const { return problem.empty(); }
};

/// Reads a decimal whole number; 1e6 and 2.50e2 are whole numbers too, 1.5 and 010 and 0x10 are not.
Parsed<std::int64_t> parse_integer(std::string_view text);

/// Reads a finite decimal number; nan, inf, hexadecimal, leading zeros and overflow are refused.
Parsed<double> parse_real(std::string_view text);

/// Reads seconds, or H:MM:SS.
Parsed<double> parse_duration(std::string_view text);

/// The shortest decimal text that reads back to the same double, e.g. "3e-4" or "0.95".
std::string format_real(double value);

}  // namespace llmtrain
