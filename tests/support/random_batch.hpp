// SPDX-License-Identifier: Apache-2.0
/// Made-up data for tests that run whole models without a dataset.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "llmtrain/model/batch.hpp"

namespace llmtrain {

/// Fills a micro-batch with tokens, targets and loss weights that depend on the number of the sample alone.
inline void random_batch(const Batch& batch, std::int64_t vocab, std::int64_t first_sample) {
  std::vector<std::pair<std::int32_t, std::int32_t>> sorted;
  for (std::int64_t i = 0; i < batch.count(); ++i) {
    const std::int64_t sample = first_sample + i / batch.sequence, position = i % batch.sequence;
    std::mt19937_64 random(static_cast<std::uint64_t>(sample * 1000 + position));
    const auto id = [&] { return static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab)); };
    batch.tokens.ptr<std::int32_t>()[i] = id();
    batch.targets.ptr<std::int32_t>()[i] = id();
    batch.weights.ptr<float>()[i] = position % 5 == 0 ? 0.0F : 1.0F;
    batch.positions.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(position);
    sorted.emplace_back(batch.tokens.ptr<std::int32_t>()[i], static_cast<std::int32_t>(i));
    if (batch.samples) batch.samples.ptr<std::int64_t>()[i / batch.sequence] = sample;
  }
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) batch.order.ptr<std::int32_t>()[i] = sorted[i].second;
}

}  // namespace llmtrain
