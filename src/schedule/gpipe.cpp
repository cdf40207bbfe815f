// SPDX-License-Identifier: Apache-2.0
/// GPipe (arXiv 1811.06965): all forwards, then all backwards; every micro-batch is alive at once.
#include "schedules.hpp"

namespace llmtrain {

std::vector<Action> gpipe(const ScheduleShape& shape) {
  std::vector<Action> actions;
  for (std::int64_t m = 0; m < shape.micro_batches; ++m) actions.push_back(forward_of(m));
  for (std::int64_t m = 0; m < shape.micro_batches; ++m) actions.push_back(backward_of(m));
  return actions;
}

}  // namespace llmtrain
