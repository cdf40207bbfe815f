// SPDX-License-Identifier: Apache-2.0
/// fp16 against its definition: all numbers, and what lies between each two neighbours.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "llmtrain/base/fp16.hpp"

using namespace llmtrain;

namespace {

/// The value of bits by the format's definition.
double value_of(unsigned bits) {
  const unsigned exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
  return (bits & 0x8000U) != 0 ? -size : size;
}

}  // namespace

TEST_CASE("fp16: every finite number has its value and its bits") {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00U) == 0x7c00U) continue;
    Fp16 number;
    number.bits = static_cast<std::uint16_t>(bits);
    REQUIRE(static_cast<double>(static_cast<float>(number)) == value_of(bits));
    REQUIRE(Fp16(static_cast<float>(number)).bits == bits);
    REQUIRE(Fp16(value_of(bits)).bits == bits);
  }
}

TEST_CASE("fp16: between two neighbours the nearer is taken, in the middle the even one") {
  for (unsigned low = 0; low < 0x7bff; ++low) {
    const double middle = (value_of(low) + value_of(low + 1)) / 2;  // exact
    const auto single = static_cast<float>(middle);
    REQUIRE(static_cast<double>(single) == middle);
    for (const unsigned sign : {0U, 0x8000U}) {
      const float s = sign == 0 ? 1.0F : -1.0F;
      REQUIRE(Fp16(s * single).bits == (sign | (low + low % 2)));
      REQUIRE(Fp16(s * std::nextafter(single, 0.0F)).bits == (sign | low));
      REQUIRE(Fp16(s * std::nextafter(single, 1e9F)).bits == (sign | (low + 1)));
      REQUIRE(Fp16(s * middle).bits == (sign | (low + low % 2)));
      REQUIRE(Fp16(s * std::nextafter(middle, 0.0)).bits == (sign | low));
      REQUIRE(Fp16(s * std::nextafter(middle, 1e9)).bits == (sign | (low + 1)));
    }
  }
}

TEST_CASE("fp16: too large, infinite, not a number") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(Fp16(65504.0F).bits == 0x7bff);
  CHECK(Fp16(std::nextafter(65520.0F, 0.0F)).bits == 0x7bff);
  CHECK(Fp16(65520.0F).bits == 0x7c00);
  CHECK(Fp16(-1e30).bits == 0xfc00);
  CHECK(Fp16(1e300).bits == 0x7c00);
  CHECK(Fp16(infinity).bits == 0x7c00);
  CHECK(static_cast<float>(Fp16(-infinity)) == -infinity);
  CHECK(std::isnan(static_cast<float>(Fp16(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(std::isnan(static_cast<float>(Fp16(std::numeric_limits<double>::signaling_NaN()))));
}
