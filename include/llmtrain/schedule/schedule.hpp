// SPDX-License-Identifier: Apache-2.0
/// Pipeline schedules as data: which micro-batch, where, when. A schedule is a pure function; adding one is one file in
/// src/schedule and one row in the registry there.
#pragma once

#include <cstdint>
#include <vector>

#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// One thing a stage does. `slot` is the activation memory that a forward fills and its backward frees.
struct Action {
  enum class Kind { forward, backward } kind = Kind::forward;
  std::int64_t micro_batch = 0;
  int slot = 0;
};

/// What a schedule is computed for.
struct ScheduleShape {
  int stages = 1;
  int stage = 0;
  std::int64_t micro_batches = 1;
};

/// The actions of one stage in order.
std::vector<Action> make_schedule(ScheduleKind kind, const ScheduleShape& shape);

/// Activation slots that a list of actions needs.
int slots_of(const std::vector<Action>& actions);

}  // namespace llmtrain
