// SPDX-License-Identifier: Apache-2.0
/// The fp16 number (IEEE binary16), for files of other programs: nothing computes with it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "llmtrain/base/bf16.hpp"
#include "llmtrain/base/dtype.hpp"
#include "llmtrain/base/inline.hpp"

namespace llmtrain {

/// Widening is exact and implicit; narrowing rounds to nearest, ties to even, once, from fp32 and from fp64. NaN stays
/// NaN, overflow (from 65520 on) becomes infinity.
struct Fp16 {
  std::uint16_t bits;

  Fp16() = default;
  LLMTRAIN_INLINE explicit Fp16(float value) : bits(rounded(value)) {}
  LLMTRAIN_INLINE explicit Fp16(double value) : bits(rounded(round_to_odd(value))) {}

  LLMTRAIN_INLINE operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t size = bits & 0x7fffu;
    // Subnormal numbers are multiples of 2^-24; the others are shifted, with the exponent's bias made fp32's.
    const std::uint32_t small = bits_as<std::uint32_t>(static_cast<float>(size) * 0x1p-24f);
    const std::uint32_t normal = (size << 13) + (size < 0x7c00u ? 0x38000000u : 0x70000000u);
    return bits_as<float>(sign | (size < 0x0400u ? small : normal));
  }

 private:
  LLMTRAIN_INLINE static std::uint16_t rounded(float value) {
    const auto wide = bits_as<std::uint32_t>(value);
    const std::uint32_t size = wide & 0x7fffffffu;
    // Below 2^-14 the sum with 0.5 rounds to a multiple of 2^-24: the subnormal numbers, in the sum's last bits.
    const std::uint32_t small = bits_as<std::uint32_t>(bits_as<float>(size) + 0.5f) - 0x3f000000u;
    const std::uint32_t normal = (size - 0x38000000u + 0x0fffu + (size >> 13 & 1u)) >> 13;
    const std::uint32_t finite = size < 0x38800000u ? small : normal;
    const std::uint32_t special = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
    return static_cast<std::uint16_t>((wide >> 16 & 0x8000u) | (size >= 0x477ff000u ? special : finite));
  }
};
static_assert(sizeof(Fp16) == 2 && std::is_trivially_copyable_v<Fp16>);

template <>
inline constexpr DType dtype_of<Fp16> = DType::fp16;

}  // namespace llmtrain
