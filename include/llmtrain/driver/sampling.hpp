// SPDX-License-Identifier: Apache-2.0
/// Choosing a token from logits, on the host.
#pragma once

#include <cstdint>
#include <span>

namespace llmtrain {

/// How a token is drawn. Temperature 0: always the largest logit (lowest id among equals). top_p: only from the fewest
/// most likely tokens whose probabilities at this temperature sum to at least this (nucleus sampling, Holtzman et al.
/// 2020); 1: from all.
struct Sampling {
  double temperature = 0.8;
  double top_p = 1;
};

/// The id to follow: a draw from softmax(logits / temperature), cut as top_p says, with `uniform` in [0, 1).
std::int32_t choose_token(std::span<const float> logits, const Sampling& sampling, double uniform);

/// A uniform number in [0, 1) from (seed, index), by Philox.
double uniform_number(std::uint64_t seed, std::uint64_t index);

}  // namespace llmtrain
