// SPDX-License-Identifier: Apache-2.0
/// The learning rate as a pure function of the update number.
#pragma once

#include <cstdint>

#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// lr of update t (1-based), with w = warmup_steps, D = decay_steps (0 = `steps`) and F = final_decay_steps (0 = D / 10,
/// rounded down, at least 1). min_lr from t = D on, exactly, but for constant.
///   t <= w     lr t / w, or with warm-up log: lr ln(t + 1) / ln(w + 1)
///   cosine     min_lr + (lr - min_lr)(1 + cos(pi (t - w) / (D - w))) / 2
///   linear     min_lr + (lr - min_lr)(D - t) / (D - w)
///   constant   lr
///   wsd        lr; over the last F updates, which never reach into the warm-up, min_lr + (lr - min_lr)(D - t) / F
double learning_rate(const OptimizerConfig& config, std::int64_t steps, std::int64_t t);

}  // namespace llmtrain
