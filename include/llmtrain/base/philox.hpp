// SPDX-License-Identifier: Apache-2.0
/// Random numbers as a function of (key, index): Philox4x32-10, and normal numbers made with IEEE add, multiply, fma,
/// divide and square root only, so that every device gives the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "llmtrain/base/inline.hpp"

namespace llmtrain {

struct PhiloxWords {
  std::uint32_t word[4];
};

/// The Philox4x32-10 block function: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
LLMTRAIN_INLINE PhiloxWords philox4x32(PhiloxWords counter, std::uint32_t key0, std::uint32_t key1) {
  PhiloxWords c = counter;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t even = std::uint64_t{0xD2511F53u} * c.word[0];
    const std::uint64_t odd = std::uint64_t{0xCD9E8D57u} * c.word[2];
    c = {{static_cast<std::uint32_t>(odd >> 32) ^ c.word[1] ^ key0, static_cast<std::uint32_t>(odd),
          static_cast<std::uint32_t>(even >> 32) ^ c.word[3] ^ key1, static_cast<std::uint32_t>(even)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

/// 128 random bits of (seed, stream, index): the seed is the key, stream and index are the counter, so that no two
/// triples share a block.
LLMTRAIN_INLINE PhiloxWords random_block(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  return philox4x32({{low(index), high(index), low(stream), high(stream)}}, low(seed), high(seed));
}

/// Natural logarithm of a positive normal number, to about 1 ulp: ln x = k ln 2 + 2 artanh((m - 1)/(m + 1)) with m in
/// [sqrt(1/2), sqrt(2)).
LLMTRAIN_INLINE double exact_log(double x) {
  constexpr std::uint64_t root_half = 0x3fe6a09e667f3bcd, one = 0x3ff0000000000000, exponent = 0xfff0000000000000;
  const auto bits = bits_as<std::uint64_t>(x);
  const std::uint64_t shifted = bits - root_half + one;  // its exponent field is k + 1023
  const auto m = bits_as<double>(bits - (shifted & exponent) + one);
  const double n = bits_as<double>((shifted >> 52) | 0x4330000000000000u) - (0x1p52 + 1023);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 21;
  p = std::fma(p, z, 1.0 / 19);
  p = std::fma(p, z, 1.0 / 17);
  p = std::fma(p, z, 1.0 / 15);
  p = std::fma(p, z, 1.0 / 13);
  p = std::fma(p, z, 1.0 / 11);
  p = std::fma(p, z, 1.0 / 9);
  p = std::fma(p, z, 1.0 / 7);
  p = std::fma(p, z, 1.0 / 5);
  p = std::fma(p, z, 1.0 / 3);
  const double twice = 2.0 * s;
  const double small = std::fma(n, 0x1.abc9e3b39803fp-56, twice * (z * p));
  return std::fma(n, 0x1.62e42fefa39efp-1, twice + small);
}

/// Sine and cosine of |x| <= pi/4 by their Taylor series, to about 1 ulp.
LLMTRAIN_INLINE void exact_sin_cos(double x, double& sine, double& cosine) {
  const double z = x * x;
  double p = 1.0 / 355687428096000.0;  // 17!
  p = std::fma(p, z, -1.0 / 1307674368000.0);
  p = std::fma(p, z, 1.0 / 6227020800.0);
  p = std::fma(p, z, -1.0 / 39916800.0);
  p = std::fma(p, z, 1.0 / 362880.0);
  p = std::fma(p, z, -1.0 / 5040.0);
  p = std::fma(p, z, 1.0 / 120.0);
  p = std::fma(p, z, -1.0 / 6.0);
  sine = std::fma(x * z, p, x);
  double q = 1.0 / 20922789888000.0;  // 16!
  q = std::fma(q, z, -1.0 / 87178291200.0);
  q = std::fma(q, z, 1.0 / 479001600.0);
  q = std::fma(q, z, -1.0 / 3628800.0);
  q = std::fma(q, z, 1.0 / 40320.0);
  q = std::fma(q, z, -1.0 / 720.0);
  q = std::fma(q, z, 1.0 / 24.0);
  q = std::fma(q, z, -0.5);
  cosine = std::fma(z, q, 1.0);
}

/// Two 64-bit random numbers of a block.
struct RandomBits {
  std::uint64_t first, second;
};

LLMTRAIN_INLINE RandomBits random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const PhiloxWords w = random_block(seed, stream, index);
  return {(std::uint64_t{w.word[1]} << 32) | w.word[0], (std::uint64_t{w.word[3]} << 32) | w.word[2]};
}

struct NormalPair {
  double first, second;
};

/// Two independent N(0, 1) numbers from random bits, by Box and Muller (1958): the first 64 bits give the radius, the
/// others the angle. Every product that enters a sum does so through fma, so that a compiler that contracts cannot
/// change a bit; integers become doubles by their bits, so that the loop vectorises.
LLMTRAIN_INLINE NormalPair normal_from_bits(RandomBits bits) {
  constexpr std::uint64_t one = 0x3ff0000000000000, mantissa = 0x000fffffffffffff, top = 0x8000000000000000;
  const double u = 2.0 - bits_as<double>((bits.first >> 12) | one);  // (0, 1]
  const double radius = std::sqrt(-2.0 * exact_log(u));
  // Angle: one of four axes from 2 bits, and (-pi/4, pi/4) around it from 51 more (an odd number of half steps).
  const double turn = bits_as<double>(((bits.second >> 10) & mantissa) | 1 | one) - 1.5;
  double sine = 0, cosine = 0;
  exact_sin_cos(turn * 0x1.921fb54442d18p0, sine, cosine);
  const bool quarter = (bits.second & (top >> 1)) != 0;
  const double x = quarter ? -sine : cosine;
  const double y = quarter ? cosine : sine;
  const auto sign = bits_as<double>(bits_as<std::uint64_t>(radius) ^ (bits.second & top));
  return {sign * x, sign * y};
}

/// Elements 2 * pair and 2 * pair + 1 of the N(0, 1) sequence of (seed, stream).
LLMTRAIN_INLINE NormalPair normal_pair(std::uint64_t seed, std::uint64_t stream, std::uint64_t pair) {
  return normal_from_bits(random_bits(seed, stream, pair));
}

/// Element `index` of the N(0, 1) sequence of (seed, stream).
LLMTRAIN_INLINE double normal_number(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const NormalPair pair = normal_pair(seed, stream, index >> 1);
  return (index & 1) != 0 ? pair.second : pair.first;
}

}  // namespace llmtrain
