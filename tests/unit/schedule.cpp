// SPDX-License-Identifier: Apache-2.0
/// Schedules: order of actions, and the activation slots they need.
#include "llmtrain/schedule/schedule.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace llmtrain;

TEST_CASE("each micro-batch goes forward once, then backward once, in its own slot") {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b}) {
    for (const int stages : {1, 2, 4}) {
      for (int stage = 0; stage < stages; ++stage) {
        for (const std::int64_t micro_batches : {1, 2, 3, 8}) {
          const std::vector<Action> actions = make_schedule(kind, {stages, stage, micro_batches});
          CHECK(actions.size() == static_cast<std::size_t>(2 * micro_batches));
          std::set<std::pair<std::int64_t, int>> alive;
          std::set<int> slots;
          std::int64_t done = 0;
          for (const Action& action : actions) {
            if (action.kind == Action::Kind::forward) {
              CHECK(slots.insert(action.slot).second);
              alive.insert({action.micro_batch, action.slot});
            } else {
              CHECK(alive.erase({action.micro_batch, action.slot}) == 1);
              slots.erase(action.slot);
              CHECK(action.micro_batch == done);
              ++done;
            }
          }
          CHECK(alive.empty());
        }
      }
    }
  }
}

TEST_CASE("1F1B keeps stages - stage micro-batches alive, GPipe all of them") {
  CHECK(slots_of(make_schedule(ScheduleKind::one_f_one_b, {4, 0, 8})) == 4);
  CHECK(slots_of(make_schedule(ScheduleKind::one_f_one_b, {4, 3, 8})) == 1);
  CHECK(slots_of(make_schedule(ScheduleKind::one_f_one_b, {4, 0, 2})) == 2);
  CHECK(slots_of(make_schedule(ScheduleKind::gpipe, {1, 0, 8})) == 8);
}
