// SPDX-License-Identifier: Apache-2.0
/// The learning rate as a pure function of the update number.
#pragma once

#include <cstdint>

#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// lr of update t (1-based). Warm-up over w = warmup_steps updates: lr t / w for t <= w. Then to update D = decay_steps
/// (0 = `steps`), cosine: min_lr + (lr - min_lr)(1 + cos(pi (t - w) / (D - w))) / 2, and min_lr from t = D on.
double learning_rate(const OptimizerConfig& config, std::int64_t steps, std::int64_t t);

}  // namespace llmtrain
