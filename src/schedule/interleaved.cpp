// SPDX-License-Identifier: Apache-2.0
/// Interleaved 1F1B (arXiv 2104.04473): each stage has several pieces of the model, so that the pipeline fills with smaller
/// ones: the bubble is 1 / chunks of 1F1B's.
#include <algorithm>

#include "llmtrain/base/error.hpp"
#include "schedules.hpp"

namespace llmtrain {

namespace {

/// Micro-batches go through one chunk before the next chunk takes them in groups: of at least one a stage (of fewer only
/// where there are no more), as equal as can be, larger ones first.
std::int64_t groups_of(const ScheduleShape& shape) {
  return std::max<std::int64_t>(shape.micro_batches / shape.stages, 1);
}

}  // namespace

std::int64_t largest_group(const ScheduleShape& shape) {
  return (shape.micro_batches + groups_of(shape) - 1) / groups_of(shape);
}

std::vector<Action> forward_order(const ScheduleShape& shape) {
  const std::int64_t groups = groups_of(shape);
  const auto first_of = [&](std::int64_t group) {
    return group * (shape.micro_batches / groups) + std::min(group, shape.micro_batches % groups);
  };
  std::vector<Action> order;
  for (std::int64_t group = 0; group < groups; ++group) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      for (std::int64_t m = first_of(group); m < first_of(group + 1); ++m) order.push_back(forward_of(m, chunk));
    }
  }
  return order;
}

std::vector<Action> interleaved(const ScheduleShape& shape) {
  if (shape.chunks == 1) return one_f_one_b(shape);
  LLMTRAIN_CHECK(shape.micro_batches >= shape.stages);
  const std::vector<Action> forwards = forward_order(shape);
  const auto total = static_cast<std::int64_t>(forwards.size());
  const std::int64_t warmup =
      std::min(total, 2 * (shape.stages - shape.stage - 1) + (shape.chunks - 1) * largest_group(shape));
  std::vector<Action> actions;
  for (std::int64_t k = 0; k < total + warmup; ++k) {
    if (k < total) actions.push_back(forwards[static_cast<std::size_t>(k)]);
    if (k < warmup) continue;
    const Action& forward = forwards[static_cast<std::size_t>(k - warmup)];
    actions.push_back(backward_of(forward.micro_batch, shape.chunks - 1 - forward.chunk));
  }
  return actions;
}

}  // namespace llmtrain
