// SPDX-License-Identifier: Apache-2.0
/// Greedy and temperature sampling in fp64.
#include "llmtrain/driver/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "llmtrain/base/philox.hpp"

namespace llmtrain {

std::int32_t choose_token(std::span<const float> logits, double temperature, double uniform) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return static_cast<std::int32_t>(largest - logits.begin());
  std::vector<double> cumulative(logits.size());
  double total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    total += std::exp((static_cast<double>(logits[i]) - static_cast<double>(*largest)) / temperature);
    cumulative[i] = total;
  }
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * total);
  return static_cast<std::int32_t>(std::min(chosen - cumulative.begin(), std::ssize(cumulative) - 1));
}

double uniform_number(std::uint64_t seed, std::uint64_t index) {
  constexpr std::uint64_t stream = 0x73616d706c65;  // "sample": apart from the streams of parameters, which are hashes
  const PhiloxWords words = random_block(seed, stream, index);
  const std::uint64_t bits = (std::uint64_t{words.word[0]} << 32 | words.word[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace llmtrain
