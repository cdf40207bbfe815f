// SPDX-License-Identifier: Apache-2.0
/// Counts of skipped updates.
#include "llmtrain/optim/skips.hpp"

#include <fmt/format.h>

namespace llmtrain {

void Skips::add(bool skipped) {
  total_ += skipped ? 1 : 0;
  in_a_row_ = skipped ? in_a_row_ + 1 : 0;
}

std::string Skips::message(std::int64_t step, double loss, double gradient_norm) const {
  return fmt::format(
      "step {}: update skipped: loss {}, gradient norm {}; {} in a row (optimizer.max_skipped {}), {} in all", step,
      loss, gradient_norm, in_a_row_, max_, total_);
}

}  // namespace llmtrain
