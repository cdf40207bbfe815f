// SPDX-License-Identifier: Apache-2.0
/// The registry of schedules, and the assignment of activation slots.
#include "llmtrain/schedule/schedule.hpp"

#include <algorithm>
#include <array>

#include "llmtrain/base/error.hpp"
#include "schedules.hpp"

namespace llmtrain {

namespace {

struct Row {
  ScheduleKind kind;
  std::vector<Action> (*make)(const ScheduleShape&);
};

constexpr std::array registry = {
    Row{ScheduleKind::gpipe, gpipe},
    Row{ScheduleKind::one_f_one_b, one_f_one_b},
    Row{ScheduleKind::interleaved, interleaved},
};

/// A forward takes the lowest free slot of its chunk; its backward frees it.
void assign_slots(std::vector<Action>& actions, int chunks) {
  std::vector<std::vector<std::int64_t>> owners(
      static_cast<std::size_t>(chunks));  // micro-batch in each slot, -1 = free
  for (Action& action : actions) {
    std::vector<std::int64_t>& owner = owners[static_cast<std::size_t>(action.chunk)];
    const bool forward = action.kind == Action::Kind::forward;
    const auto found = std::find(owner.begin(), owner.end(), forward ? -1 : action.micro_batch);
    const auto slot = found - owner.begin();
    if (found == owner.end()) {
      LLMTRAIN_CHECK(forward);
      owner.push_back(-1);
    }
    owner[static_cast<std::size_t>(slot)] = forward ? action.micro_batch : -1;
    action.slot = static_cast<int>(slot);
  }
}

}  // namespace

std::vector<Action> make_schedule(ScheduleKind kind, const ScheduleShape& shape) {
  const auto row = std::find_if(registry.begin(), registry.end(), [&](const Row& r) { return r.kind == kind; });
  LLMTRAIN_CHECK(row != registry.end());
  std::vector<Action> work = row->make(shape);
  assign_slots(work, shape.chunks);
  return with_transfers(work, shape);
}

std::vector<Action> make_forward_schedule(const ScheduleShape& shape) {
  return with_transfers(forward_order(shape), shape);
}

int slots_of(const std::vector<Action>& actions, int chunk) {
  int slots = 0;
  for (const Action& action : actions) {
    if (action.computes() && action.chunk == chunk) slots = std::max(slots, action.slot + 1);
  }
  return slots;
}

BoundaryCounts boundaries_of(const std::vector<Action>& actions) {
  BoundaryCounts counts;
  for (const Action& action : actions) {
    counts.inputs = std::max(counts.inputs, action.input + 1);
    counts.outputs = std::max(counts.outputs, action.output + 1);
    counts.gradients = std::max(counts.gradients, action.gradient + 1);
  }
  return counts;
}

}  // namespace llmtrain
