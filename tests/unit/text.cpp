// SPDX-License-Identifier: Apache-2.0
/// Numbers for people and for files, at the edges of their units, and in a locale with a decimal comma.
#include "llmtrain/base/text.hpp"

#include <doctest/doctest.h>

#include <clocale>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <locale>

#include "llmtrain/base/json.hpp"

using namespace llmtrain;

TEST_CASE("shortest text reads back as the same double") {
  CHECK(shortest(0.1) == "0.1");
  CHECK(shortest(3e-4) == "3e-04");
  CHECK(shortest(2) == "2");
  for (const double value : {1.0 / 3, 5e-324, 1.7976931348623157e308, -2.2250738585072014e-308, 123456789.123456789})
    CHECK(std::strtod(shortest(value).c_str(), nullptr) == value);
  CHECK(shortest(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(shortest(std::numeric_limits<double>::quiet_NaN()) == "nan");
}

TEST_CASE("bytes") {
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(1023) == "1023 B");
  CHECK(human_bytes(1024) == "1.00 KiB");
  CHECK(human_bytes(1023 * 1024) == "1023 KiB");
  CHECK(human_bytes(1024 * 1024 - 1) == "1.00 MiB");
  CHECK(human_bytes(123'456'789) == "118 MiB");
  CHECK(human_bytes(80LL << 30) == "80.0 GiB");
  CHECK(human_bytes(std::numeric_limits<std::int64_t>::max()) == "8.00 EiB");
  CHECK(human_bytes(-(3LL << 20)) == "-3.00 MiB");
}

TEST_CASE("counts") {
  CHECK(human_count(999) == "999");
  CHECK(human_count(1000) == "1.00 k");
  CHECK(human_count(999'999) == "1.00 M");
  CHECK(human_count(9'996) == "10.0 k");
  CHECK(human_count(1'234'567) == "1.23 M");
  CHECK(human_count(8'030'261'248) == "8.03 B");
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(12'345) == "12,345");
  CHECK(grouped(-1'234'567) == "-1,234,567");
  CHECK(grouped(-123) == "-123");
}

TEST_CASE("SI quantities") {
  CHECK(si(9.894e14, "FLOP/s") == "989.4 TFLOP/s");
  CHECK(si(51.47e9, "FLOP/token") == "51.47 GFLOP/token");
  CHECK(si(999.96, "B/s") == "1.000 kB/s");
  CHECK(si(0.5, "s") == "0.500 s");
  CHECK(si(std::numeric_limits<double>::quiet_NaN(), "FLOP/s") == "nan FLOP/s");
}

TEST_CASE("durations") {
  CHECK(duration(0) == "0:00:00");
  CHECK(duration(83.4) == "0:01:23");
  CHECK(duration(59.6) == "0:01:00");
  CHECK(duration(125 * 3600) == "125:00:00");
  CHECK(duration(-1) == "-:--:--");
  CHECK(duration(std::numeric_limits<double>::quiet_NaN()) == "-:--:--");
}

namespace {

void check_points() {
  CHECK(shortest(1.5) == "1.5");
  CHECK(json_number(0.25) == "0.25");
  CHECK(human_bytes(1536) == "1.50 KiB");
  CHECK(si(1.5e3, "FLOP") == "1.500 kFLOP");
  CHECK(grouped(12'345) == "12,345");
}

struct GermanPoint : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

}  // namespace

TEST_CASE("a C++ locale with a decimal comma changes nothing") {
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new GermanPoint));
  check_points();
  std::locale::global(before);
}

TEST_CASE("a C locale with a decimal comma changes nothing") {
  if (std::setlocale(LC_ALL, "de_DE.UTF-8") == nullptr) {
    MESSAGE("skipped: the locale de_DE.UTF-8 is not installed");
    return;
  }
  char comma[8];
  std::snprintf(comma, sizeof comma, "%.1f", 1.5);
  CHECK(std::string(comma) == "1,5");  // the locale is what this case is about
  check_points();
  std::setlocale(LC_ALL, "C");
}

TEST_CASE("fields of a text are what stands behind the first space of its lines") {
  const auto fields = fields_of("name a b\nempty \nnone\nname last");
  CHECK(fields.size() == 2);
  CHECK(fields.at("name") == "last");
  CHECK(fields.at("empty").empty());
}
