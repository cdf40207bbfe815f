// SPDX-License-Identifier: Apache-2.0
/// The generator and shuffle of numpy's legacy RandomState, bit for bit: Megatron's sample order is made with them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace llmtrain {

/// MT19937 seeded with one 32-bit number, as numpy.random.RandomState(seed).
/// Source: Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8 (1998).
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint32_t seed);

  /// The next 32-bit output.
  std::uint32_t next();

  /// Uniform in [0, max] by masking and rejection; draws nothing for max = 0, two outputs a try (high word first) for
  /// max >= 2^32.
  std::uint64_t interval(std::uint64_t max);

  /// RandomState.shuffle of a one-dimensional array, in place.
  template <class T>
  void shuffle(std::span<T> values) {
    for (std::uint64_t i = values.size(); i-- > 1;) std::swap(values[i], values[interval(i)]);
  }

 private:
  void refill();

  static constexpr std::size_t words = 624;
  std::array<std::uint32_t, words> state_;
  std::size_t used_ = words;
};

}  // namespace llmtrain
