// SPDX-License-Identifier: Apache-2.0
/// The arithmetic of run.max_walltime: what two more steps and a save take by what was measured.
#include <doctest/doctest.h>

#include "llmtrain/driver/control.hpp"

using namespace llmtrain;

TEST_CASE("the walltime keeps two steps, what follows them, and the last save free") {
  Walltime time(100, 5);
  const Plans nothing, evaluation{.evaluation = true, .save = false}, save{.evaluation = false, .save = true};
  CHECK_FALSE(time.is_over(95, nothing, nothing));  // no step measured yet: the first save alone
  CHECK(time.is_over(95.5, nothing, nothing));
  time.took_step(2);
  time.took_step(1);  // the longest counts
  CHECK_FALSE(time.is_over(91, nothing, nothing));
  CHECK(time.is_over(91.5, nothing, nothing));
  time.took_evaluation(3);
  CHECK_FALSE(time.is_over(91, nothing, nothing));  // none is due
  CHECK(time.is_over(88.5, evaluation, nothing));
  CHECK(time.is_over(88.5, nothing, evaluation));
  CHECK_FALSE(time.is_over(88, nothing, evaluation));
  time.took_save(10);  // measured: no assumption any more
  CHECK_FALSE(time.is_over(86, nothing, nothing));
  CHECK(time.is_over(86.5, nothing, nothing));
  CHECK_FALSE(time.is_over(86, nothing, save));  // it is the last save
  CHECK(time.is_over(76.5, save, nothing));      // a save, and then the last one
  CHECK_FALSE(time.is_over(76, save, nothing));
}

TEST_CASE("no limit is never over") {
  Walltime time(0, 1e9);
  time.took_step(1e9);
  CHECK_FALSE(time.is_over(1e12, {.evaluation = true, .save = true}, {.evaluation = true, .save = true}));
}
