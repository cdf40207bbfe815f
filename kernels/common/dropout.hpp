// SPDX-License-Identifier: Apache-2.0
/// Which elements a dropout keeps: a function of its key, the sample, the token's index in it and the feature.
#pragma once

#include <cmath>
#include <cstdint>

#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/base/philox.hpp"

namespace llmtrain {

/// Features that one block of random bits decides on.
inline constexpr std::int64_t dropout_features = 4;

/// The 32-bit random words of features [4 quad, 4 quad + 4). Sample numbers stay below 2^48 and operations below 2^16,
/// so no two triples share a block; the seed is marked, so that none is shared with the initial weights either.
LLMTRAIN_INLINE PhiloxWords dropout_words(const DropoutKey& key, std::int64_t sample, std::int64_t position,
                                          std::int64_t quad) {
  constexpr std::uint64_t mark = 0x64726f706f757421;  // "dropout!"
  const std::uint64_t stream = (static_cast<std::uint64_t>(key.operation) << 48) | static_cast<std::uint64_t>(sample);
  const std::uint64_t index = (static_cast<std::uint64_t>(position) << 32) | static_cast<std::uint64_t>(quad);
  return random_block(key.seed ^ mark, stream, index);
}

/// Elements whose word is below this are dropped.
LLMTRAIN_INLINE std::uint32_t dropout_threshold(double probability) {
  const double words = std::nearbyint(probability * 0x1p32);
  return words < 0x1p32 ? static_cast<std::uint32_t>(words) : 0xffffffffu;
}

}  // namespace llmtrain
