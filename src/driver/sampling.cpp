// SPDX-License-Identifier: Apache-2.0
/// Greedy, temperature and nucleus sampling in fp64.
#include "llmtrain/driver/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "llmtrain/base/philox.hpp"

namespace llmtrain {

namespace {

/// Sets to 0 all weights but the largest that together are at least top_p of the sum; of equal weights, lower ids stay.
void keep_nucleus(std::vector<double>& weights, double top_p) {
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  double missing = top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const std::size_t id : order) {
    const double weight = weights[id];
    if (missing <= 0) weights[id] = 0;
    missing -= weight;
  }
}

}  // namespace

std::int32_t choose_token(std::span<const float> logits, const Sampling& sampling, double uniform) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (sampling.temperature == 0) return static_cast<std::int32_t>(largest - logits.begin());
  std::vector<double> weights(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    weights[i] = std::exp((static_cast<double>(logits[i]) - static_cast<double>(*largest)) / sampling.temperature);
  if (sampling.top_p < 1) keep_nucleus(weights, sampling.top_p);
  std::vector<double> cumulative(weights.size());
  std::partial_sum(weights.begin(), weights.end(), cumulative.begin());
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * cumulative.back());
  return static_cast<std::int32_t>(std::min(chosen - cumulative.begin(), std::ssize(cumulative) - 1));
}

double uniform_number(std::uint64_t seed, std::uint64_t index) {
  constexpr std::uint64_t stream = 0x73616d706c65;  // "sample": apart from the streams of parameters, which are hashes
  const PhiloxWords words = random_block(seed, stream, index);
  const std::uint64_t bits = (std::uint64_t{words.word[0]} << 32 | words.word[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace llmtrain
