// SPDX-License-Identifier: Apache-2.0
/// The learning rate at the edges of warm-up and decay and by every rule; the count of skipped updates.
#include "llmtrain/optim/lr.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "llmtrain/optim/skips.hpp"

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

TEST_CASE("every rule, step by step") {
  OptimizerConfig config;
  config.lr = 1;
  config.min_lr = 0.2;
  config.warmup_steps = 4;
  const auto rates = [&](LrSchedule schedule) {
    config.schedule = schedule;
    std::vector<double> out;
    for (std::int64_t t = 1; t <= 12; ++t) out.push_back(learning_rate(config, 12, t));
    return out;
  };
  const auto same = [](const std::vector<double>& got, const std::vector<double>& expected) {
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-14));
    }
    CHECK(got[3] == 1.0);
  };
  same(rates(LrSchedule::linear), {.25, .5, .75, 1, .9, .8, .7, .6, .5, .4, .3, .2});
  CHECK(rates(LrSchedule::linear).back() == 0.2);
  config.final_decay_steps = 4;
  same(rates(LrSchedule::wsd), {.25, .5, .75, 1, 1, 1, 1, 1, .8, .6, .4, .2});
  CHECK(rates(LrSchedule::wsd).back() == 0.2);
  config.final_decay_steps = 0;  // a tenth of 12 is 1
  same(rates(LrSchedule::wsd), {.25, .5, .75, 1, 1, 1, 1, 1, 1, 1, 1, .2});
  config.decay_steps = 10;
  same(rates(LrSchedule::wsd), {.25, .5, .75, 1, 1, 1, 1, 1, 1, .2, .2, .2});
  config.final_decay_steps = 6;
  same(rates(LrSchedule::wsd), {.25, .5, .75, 1, 1 - .8 / 6, 1 - 1.6 / 6, .6, 1 - 3.2 / 6, 1 - 4. / 6, .2, .2, .2});
}

TEST_CASE("logarithmic warm-up, and wsd whose decay would begin in the warm-up") {
  OptimizerConfig config;
  config.lr = 2;
  config.min_lr = 0;
  config.warmup_steps = 3;
  config.warmup = Warmup::log;
  config.schedule = LrSchedule::wsd;
  CHECK(learning_rate(config, 100, 1) == doctest::Approx(1));  // ln 2 / ln 4
  CHECK(learning_rate(config, 100, 2) == doctest::Approx(2 * 0.7924812503605781));
  CHECK(learning_rate(config, 100, 3) == 2);
  CHECK(learning_rate(config, 100, 90) == 2);
  CHECK(learning_rate(config, 100, 95) == 1);
  CHECK(learning_rate(config, 100, 100) == 0);
  config.final_decay_steps = 8;
  CHECK(learning_rate(config, 5, 3) == 2);
  CHECK(learning_rate(config, 5, 4) == 1);
  CHECK(learning_rate(config, 5, 5) == 0);
}

TEST_CASE("skipped updates: the count in a row starts again after a good one and goes on over a resume") {
  Skips skips(2, 0, 0);
  for (const bool skipped : {true, true, false, true, true}) {
    skips.add(skipped);
    CHECK_FALSE(skips.too_many());
  }
  CHECK(skips.total() == 4);
  CHECK(skips.in_a_row() == 2);
  Skips resumed(2, skips.total(), skips.in_a_row());
  resumed.add(true);
  CHECK(resumed.too_many());
  CHECK(resumed.message(9, 0.5, std::numeric_limits<double>::infinity()) ==
        "step 9: update skipped: loss 0.5, gradient norm inf; 3 in a row (optimizer.max_skipped 2), 5 in all");
}
