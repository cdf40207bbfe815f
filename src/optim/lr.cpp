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

/// Where an update stands after the warm-up.
struct Decay {
  double lr;
  double min_lr;
  double progress;        ///< from 0 (last warm-up step) to 1 (update D and later)
  double final_progress;  ///< of wsd's last decay: 0 until it begins, 1 at update D and later
};

double between(const Decay& d, double share) { return d.min_lr + (d.lr - d.min_lr) * share; }

double cosine(const Decay& d) { return between(d, (1.0 + std::cos(std::numbers::pi * d.progress)) / 2.0); }

double linear(const Decay& d) { return between(d, 1.0 - d.progress); }

double constant(const Decay& d) { return d.lr; }

/// Warm-up, stable, decay: the decay is linear.
double wsd(const Decay& d) { return d.final_progress > 0 ? between(d, 1.0 - d.final_progress) : d.lr; }

struct Row {
  LrSchedule kind;
  double (*rule)(const Decay&);
};

constexpr std::array registry = {
    Row{LrSchedule::cosine, cosine},
    Row{LrSchedule::linear, linear},
    Row{LrSchedule::constant, constant},
    Row{LrSchedule::wsd, wsd},
};

/// Share of the way from update `begin` to update `end` that is done at t, in [0, 1].
double share_done(std::int64_t t, std::int64_t begin, std::int64_t end) {
  if (t >= end) return 1.0;
  return t <= begin ? 0.0 : static_cast<double>(t - begin) / static_cast<double>(end - begin);
}

/// Share of lr at update t of a warm-up over w updates; exactly 1 at t = w.
double warmup_share(Warmup kind, double t, double w) {
  return kind == Warmup::log ? std::log(t + 1) / std::log(w + 1) : t / w;
}

}  // namespace

double learning_rate(const OptimizerConfig& config, std::int64_t steps, std::int64_t t) {
  const std::int64_t warmup = config.warmup_steps;
  if (t <= warmup) {
    return config.lr * warmup_share(config.warmup, static_cast<double>(t), static_cast<double>(warmup));
  }
  const std::int64_t horizon = config.decay_steps == 0 ? steps : config.decay_steps;
  const std::int64_t tenth = std::max<std::int64_t>(horizon / 10, 1);
  const std::int64_t final_steps = config.final_decay_steps == 0 ? tenth : config.final_decay_steps;
  const auto row =
      std::find_if(registry.begin(), registry.end(), [&](const Row& r) { return r.kind == config.schedule; });
  LLMTRAIN_CHECK(row != registry.end());
  return row->rule({config.lr, config.min_lr, share_done(t, warmup, horizon),
                    share_done(t, std::max(warmup, horizon - final_steps), horizon)});
}

}  // namespace llmtrain
