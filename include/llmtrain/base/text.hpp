// SPDX-License-Identifier: Apache-2.0
/// Numbers as text for people and for files, and text by lines; nothing here depends on the process's locale.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace llmtrain {

/// The shortest text that reads back as exactly this value ("0.1", "3e-04", "1e+300"); "nan", "inf", "-inf" otherwise.
std::string shortest(double value);

/// Bytes in binary units with three digits: "512 B", "1.50 KiB", "123 MiB", "2.00 GiB".
std::string human_bytes(std::int64_t bytes);

/// A count with three digits in thousand, million, billion, trillion: "950", "1.23 k", "8.03 B".
std::string human_count(std::int64_t count);

/// A quantity with an SI prefix and four digits: si(9.894e14, "FLOP/s") = "989.4 TFLOP/s".
std::string si(double value, const std::string& unit);

/// Digits in groups of three: "12,345".
std::string grouped(std::int64_t value);

/// H:MM:SS, rounded to seconds: "0:01:23", "125:00:00"; "-:--:--" for a negative or non-finite time.
std::string duration(double seconds);

/// The lines of a text, without their ends; the last one may lack its end.
std::vector<std::string> lines_of(const std::string& text);

/// Values by name, of a text with "name value" in each line; the value is all behind the first space. A line without one is
/// left out.
std::map<std::string, std::string> fields_of(const std::string& text);

}  // namespace llmtrain
