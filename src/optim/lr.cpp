// SPDX-License-Identifier: Apache-2.0
/// Learning rate rules, one registry row each.
#include "llmtrain/optim/lr.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

/// Where an update stands after warm-up: `progress` from 0 (last warm-up step) to 1 (update D and later).
struct Decay {
  double lr;
  double min_lr;
  double progress;
};

double cosine(const Decay& d) {
  return d.min_lr + (d.lr - d.min_lr) * (1.0 + std::cos(std::numbers::pi * d.progress)) / 2.0;
}

double constant(const Decay& d) { return d.lr; }

struct Row {
  LrSchedule kind;
  double (*rule)(const Decay&);
};

constexpr std::array registry = {
    Row{LrSchedule::cosine, cosine},
    Row{LrSchedule::constant, constant},
};

}  // namespace

double learning_rate(const OptimizerConfig& config, std::int64_t steps, std::int64_t t) {
  const std::int64_t warmup = config.warmup_steps;
  if (t <= warmup) return config.lr * static_cast<double>(t) / static_cast<double>(warmup);
  const std::int64_t horizon = config.decay_steps == 0 ? steps : config.decay_steps;
  const double progress = t >= horizon ? 1.0 : static_cast<double>(t - warmup) / static_cast<double>(horizon - warmup);
  const auto row =
      std::find_if(registry.begin(), registry.end(), [&](const Row& r) { return r.kind == config.schedule; });
  LLMTRAIN_CHECK(row != registry.end());
  return row->rule({config.lr, config.min_lr, progress});
}

}  // namespace llmtrain
