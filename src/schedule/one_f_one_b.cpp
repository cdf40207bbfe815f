// SPDX-License-Identifier: Apache-2.0
/// 1F1B (PipeDream-Flush, arXiv 2006.09503): stage r of P keeps at most P - r micro-batches alive.
#include <algorithm>

#include "schedules.hpp"

namespace llmtrain {

std::vector<Action> one_f_one_b(const ScheduleShape& shape) {
  const std::int64_t warmup = std::min<std::int64_t>(shape.stages - shape.stage - 1, shape.micro_batches);
  std::vector<Action> actions;
  for (std::int64_t m = 0; m < warmup; ++m) actions.push_back(forward_of(m));
  for (std::int64_t m = warmup; m < shape.micro_batches; ++m) {
    actions.push_back(forward_of(m));
    actions.push_back(backward_of(m - warmup));
  }
  for (std::int64_t m = shape.micro_batches - warmup; m < shape.micro_batches; ++m) actions.push_back(backward_of(m));
  return actions;
}

}  // namespace llmtrain
