// SPDX-License-Identifier: Apache-2.0
/// A pseudo-random permutation of [0, size), one element at a time, in no memory.
#pragma once

#include <bit>
#include <cstdint>

#include "llmtrain/base/philox.hpp"

namespace llmtrain {

/// A Feistel network on the smallest even number of bits that hold `size`, applied until the result is below `size`
/// ("cycle walking": Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002); less than four times on
/// average. Its round function is philox, so (seed, stream) choose among as many permutations.
class Permutation {
 public:
  Permutation(std::int64_t size, std::uint64_t seed, std::uint64_t stream)
      : size_(static_cast<std::uint64_t>(size)), seed_(seed), stream_(stream) {
    half_bits_ = (std::bit_width(size_ - 1) + 1) / 2;
  }

  /// The element at `index` of [0, size).
  std::int64_t operator()(std::int64_t index) const {
    auto value = static_cast<std::uint64_t>(index);
    do {
      value = network(value);
    } while (value >= size_);
    return static_cast<std::int64_t>(value);
  }

 private:
  static constexpr std::uint64_t rounds = 6;

  std::uint64_t network(std::uint64_t value) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t mixed = left ^ (random_bits(seed_, stream_, (round << 32) | right).first & mask);
      left = right;
      right = mixed;
    }
    return (left << half_bits_) | right;
  }

  std::uint64_t size_;
  std::uint64_t seed_;
  std::uint64_t stream_;
  int half_bits_;  // at most 32: sizes are below 2^63
};

}  // namespace llmtrain
