// SPDX-License-Identifier: Apache-2.0
/// The two fp8 numbers of arXiv 2209.05433: E4M3 (largest 448, no infinity) and E5M2 (largest 57344).
#pragma once

#include <cstdint>
#include <type_traits>

#include "llmtrain/base/dtype.hpp"
#include "llmtrain/base/inline.hpp"

namespace llmtrain {

/// Widening is exact and implicit; narrowing rounds to nearest, ties to even, and what is too large, infinity included,
/// becomes the largest number. NaN stays NaN.
template <int exponent_bits>
struct Fp8 {
  static constexpr int mantissa_bits = 7 - exponent_bits;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr float largest = exponent_bits == 4 ? 448.0F : 57344.0F;

  std::uint8_t bits;

  Fp8() = default;
  LLMTRAIN_INLINE explicit Fp8(float value) : bits(rounded(value)) {}

  LLMTRAIN_INLINE operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24;
    const std::uint32_t size = bits & 0x7fu;
    if (size > largest_bits) {
      return bits_as<float>(sign | (exponent_bits == 5 && size == largest_bits + 1 ? 0x7f800000u : 0x7fc00000u));
    }
    if (size < 1u << mantissa_bits) {
      const float small = static_cast<float>(size) / steps_of_one;
      return sign != 0 ? -small : small;
    }
    return bits_as<float>(sign | ((size << (23 - mantissa_bits)) + (static_cast<std::uint32_t>(127 - bias) << 23)));
  }

 private:
  static constexpr std::uint32_t largest_bits = exponent_bits == 4 ? 0x7e : 0x7b;
  /// 1 in units of the smallest number.
  static constexpr float steps_of_one = static_cast<float>(1 << (bias + mantissa_bits - 1));
  static constexpr float smallest_normal = static_cast<float>(1 << mantissa_bits) / steps_of_one;

  /// Without branches, so that loops of it are vectors.
  LLMTRAIN_INLINE static std::uint8_t rounded(float value) {
    constexpr int dropped = 23 - mantissa_bits;
    const auto wide = bits_as<std::uint32_t>(value);
    const float given = bits_as<float>(wide & 0x7fffffffu);
    const float size = given > largest ? largest : given;
    const auto small =
        bits_as<std::uint32_t>(size * steps_of_one + 0x1p23F) & 0xffu;  // beside 2^23, no fraction is left
    const auto exact = bits_as<std::uint32_t>(size);
    const std::uint32_t nearest = exact + ((1u << (dropped - 1)) - 1) + (exact >> dropped & 1u);
    const std::uint32_t normal = (nearest >> dropped) - (static_cast<std::uint32_t>(127 - bias) << mantissa_bits);
    const std::uint32_t number = size < smallest_normal ? small : normal;
    return static_cast<std::uint8_t>((wide >> 24 & 0x80u) | (value != value ? 0x7fu : number));
  }
};

/// Divides all extents of matrices in fp8: libraries read their rows, and those of their transposes, 16 bytes at a time.
inline constexpr std::int64_t fp8_multiple = 16;

using Fp8E4M3 = Fp8<4>;
using Fp8E5M2 = Fp8<5>;
static_assert(sizeof(Fp8E4M3) == 1 && std::is_trivially_copyable_v<Fp8E4M3>);

template <>
inline constexpr DType dtype_of<Fp8E4M3> = DType::fp8_e4m3;
template <>
inline constexpr DType dtype_of<Fp8E5M2> = DType::fp8_e5m2;

}  // namespace llmtrain
