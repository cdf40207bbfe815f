// SPDX-License-Identifier: Apache-2.0
/// The learning rate at the edges of warm-up and decay.
#include "llmtrain/optim/lr.hpp"

#include <doctest/doctest.h>

using namespace llmtrain;

TEST_CASE("linear warm-up starts above zero and the cosine ends exactly at min_lr") {
  OptimizerConfig config;
  config.lr = 1e-3;
  config.min_lr = 1e-4;
  config.warmup_steps = 4;
  CHECK(learning_rate(config, 12, 1) == doctest::Approx(2.5e-4));
  CHECK(learning_rate(config, 12, 4) == 1e-3);
  CHECK(learning_rate(config, 12, 8) == doctest::Approx((1e-3 + 1e-4) / 2));
  CHECK(learning_rate(config, 12, 12) == 1e-4);
  CHECK(learning_rate(config, 12, 400) == 1e-4);
  config.decay_steps = 8;
  CHECK(learning_rate(config, 12, 8) == 1e-4);
}

TEST_CASE("without warm-up the first update has nearly the full rate; constant stays") {
  OptimizerConfig config;
  config.lr = 1e-3;
  config.warmup_steps = 0;
  CHECK(learning_rate(config, 1000, 1) < 1e-3);
  CHECK(learning_rate(config, 1000, 1) > 0.999e-3);
  config.schedule = LrSchedule::constant;
  CHECK(learning_rate(config, 1000, 1) == 1e-3);
  CHECK(learning_rate(config, 1000, 1000) == 1e-3);
  config.warmup_steps = 1000;
  CHECK(learning_rate(config, 1000, 1000) == 1e-3);
}
