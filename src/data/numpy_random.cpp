// SPDX-License-Identifier: Apache-2.0
/// MT19937 and numpy's bounded integers.
#include "llmtrain/data/numpy_random.hpp"

#include <bit>
#include <limits>

#include "llmtrain/base/beacon.hpp"

namespace llmtrain {

NumpyRandom::NumpyRandom(std::uint32_t seed) {
  state_[0] = seed;
  for (std::uint32_t i = 1; i < words; ++i) state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
}

void NumpyRandom::refill() {
  Beacon::beat();  // a shuffle of billions takes minutes
  constexpr std::size_t shift = 397;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint32_t y = (state_[i] & 0x80000000U) | (state_[(i + 1) % words] & 0x7fffffffU);
    state_[i] = state_[(i + shift) % words] ^ (y >> 1) ^ ((y & 1U) != 0 ? 0x9908b0dfU : 0U);
  }
  used_ = 0;
}

std::uint32_t NumpyRandom::next() {
  if (used_ == words) refill();
  std::uint32_t y = state_[used_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680U;
  y ^= (y << 15) & 0xefc60000U;
  return y ^ (y >> 18);
}

std::uint64_t NumpyRandom::interval(std::uint64_t max) {
  if (max == 0) return 0;
  const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(max);
  const bool narrow = max <= std::numeric_limits<std::uint32_t>::max();
  for (;;) {
    std::uint64_t value = next();
    if (!narrow) value = (value << 32) | next();
    if ((value & mask) <= max) return value & mask;
  }
}

}  // namespace llmtrain
