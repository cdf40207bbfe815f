// SPDX-License-Identifier: Apache-2.0
/// The bf16 number: the upper half of an fp32 number.
#pragma once

#include <cstdint>
#include <type_traits>

#include "llmtrain/base/dtype.hpp"
#include "llmtrain/base/inline.hpp"

namespace llmtrain {

/// fp32 towards zero, with its last bit set where anything was lost: rounding that to a shorter format is rounding the
/// fp64 number.
LLMTRAIN_INLINE float round_to_odd(double value) {
  const float near = static_cast<float>(value);
  const double back = static_cast<double>(near);
  auto wide = bits_as<std::uint32_t>(near);
  const double size = value < 0 ? -value : value, back_size = back < 0 ? -back : back;
  wide -= back_size > size ? 1u : 0u;
  wide |= back != value ? 1u : 0u;
  return bits_as<float>(wide);
}

/// Widening is exact and implicit; narrowing rounds to nearest, ties to even, once, from fp32 and from fp64. NaN stays
/// NaN, overflow becomes infinity.
struct Bf16 {
  std::uint16_t bits;

  Bf16() = default;
  LLMTRAIN_INLINE explicit Bf16(float value) : bits(rounded(value)) {}
  LLMTRAIN_INLINE explicit Bf16(double value) : bits(rounded(round_to_odd(value))) {}
  template <class Integer>
  requires std::is_integral_v<Integer> LLMTRAIN_INLINE explicit Bf16(Integer value)
      : Bf16(static_cast<double>(value)) {}

  LLMTRAIN_INLINE operator float() const { return bits_as<float>(static_cast<std::uint32_t>(bits) << 16); }

 private:
  LLMTRAIN_INLINE static std::uint16_t rounded(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    std::uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    const auto wide = bits_as<std::uint32_t>(value);
    const std::uint32_t nearest = (wide + 0x7fffu + (wide >> 16 & 1u)) >> 16;
    const std::uint32_t quiet = wide >> 16 | 0x40u;
    return static_cast<std::uint16_t>(value != value ? quiet : nearest);
#endif
  }
};
static_assert(sizeof(Bf16) == 2 && std::is_trivially_copyable_v<Bf16>);

template <>
inline constexpr DType dtype_of<Bf16> = DType::bf16;

}  // namespace llmtrain
