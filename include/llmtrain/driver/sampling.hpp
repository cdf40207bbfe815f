// SPDX-License-Identifier: Apache-2.0
/// Choosing a token from logits, on the host.
#pragma once

#include <cstdint>
#include <span>

namespace llmtrain {

/// The id to follow. Temperature 0: the largest logit (lowest id among equals). Else a draw from softmax(logits /
/// temperature) with `uniform` in [0, 1).
std::int32_t choose_token(std::span<const float> logits, double temperature, double uniform);

/// A uniform number in [0, 1) from (seed, index), by Philox.
double uniform_number(std::uint64_t seed, std::uint64_t index);

}  // namespace llmtrain
