// SPDX-License-Identifier: Apache-2.0
/// The schedules that the registry names, one file each: forwards and backwards in order, without slots and transfers.
#pragma once

#include "llmtrain/schedule/schedule.hpp"

namespace llmtrain {

inline Action forward_of(std::int64_t micro_batch, int chunk = 0) {
  return {.kind = Action::Kind::forward, .micro_batch = micro_batch, .chunk = chunk};
}
inline Action backward_of(std::int64_t micro_batch, int chunk = 0) {
  return {.kind = Action::Kind::backward, .micro_batch = micro_batch, .chunk = chunk};
}

std::vector<Action> gpipe(const ScheduleShape& shape);
std::vector<Action> one_f_one_b(const ScheduleShape& shape);
std::vector<Action> interleaved(const ScheduleShape& shape);

/// Forwards of all chunks in the order in which pieces pass them on.
std::vector<Action> forward_order(const ScheduleShape& shape);
/// Micro-batches that go through one chunk before the next chunk takes them.
std::int64_t largest_group(const ScheduleShape& shape);

/// Adds transfers and numbers the boundary tensors. A receive is started one forward or backward ahead of its use; a tensor
/// that was sent is not written again before a few others were.
std::vector<Action> with_transfers(const std::vector<Action>& work, const ScheduleShape& shape);

}  // namespace llmtrain
