// SPDX-License-Identifier: Apache-2.0
/// Both fp8 formats against their definition: all numbers, and what lies between each two neighbours.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "llmtrain/base/fp8.hpp"

using namespace llmtrain;

namespace {

/// The value of bits by the format's definition.
template <class T>
double value_of(unsigned bits) {
  const int mantissa = T::mantissa_bits;
  const unsigned exponent = (bits & 0x7fU) >> mantissa, fraction = bits & ((1U << mantissa) - 1);
  const double size = exponent == 0
                          ? std::ldexp(fraction, 1 - T::bias - mantissa)
                          : std::ldexp((1U << mantissa) + fraction, static_cast<int>(exponent) - T::bias - mantissa);
  return (bits & 0x80U) != 0 ? -size : size;
}

template <class T>
T of_bits(unsigned bits) {
  T number;
  number.bits = static_cast<std::uint8_t>(bits);
  return number;
}

template <class T>
unsigned bits_of(float value) {
  return T(value).bits;
}

}  // namespace

TEST_CASE_TEMPLATE("fp8: every finite number has its value and its bits, and its neighbours round to it", T, Fp8E4M3,
                   Fp8E5M2) {
  const unsigned largest = bits_of<T>(T::largest);
  CHECK(value_of<T>(largest) == static_cast<double>(T::largest));
  for (unsigned size = 0; size <= largest; ++size) {
    for (const unsigned sign : {0U, 0x80U}) {
      const float value = of_bits<T>(size | sign);
      REQUIRE(static_cast<double>(value) == value_of<T>(size | sign));
      REQUIRE(bits_of<T>(value) == (size | sign));
      if (size == largest) continue;
      const float next = of_bits<T>((size + 1) | sign), middle = (value + next) / 2;  // exact
      REQUIRE(bits_of<T>(middle) == ((size + size % 2) | sign));
      REQUIRE(bits_of<T>(std::nextafter(middle, value)) == (size | sign));
      REQUIRE(bits_of<T>(std::nextafter(middle, next)) == ((size + 1) | sign));
    }
  }
}

TEST_CASE_TEMPLATE("fp8: what is too large is the largest, NaN is NaN", T, Fp8E4M3, Fp8E5M2) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {T::largest * 1.5F, std::numeric_limits<float>::max(), infinity}) {
    CHECK(static_cast<float>(T(value)) == T::largest);
    CHECK(static_cast<float>(T(-value)) == -T::largest);
  }
  CHECK(std::isnan(static_cast<float>(T(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(std::isnan(static_cast<float>(of_bits<T>(0xff))));
}

TEST_CASE("fp8: E5M2 has an infinity, E4M3 has none") {
  CHECK(std::isinf(static_cast<float>(of_bits<Fp8E5M2>(0x7c))));
  CHECK(static_cast<float>(of_bits<Fp8E4M3>(0x7e)) == 448.0F);
}
