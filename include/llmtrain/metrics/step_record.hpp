// SPDX-License-Identifier: Apache-2.0
/// What is known of one finished training step; metrics.jsonl and the progress lines are made from it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "llmtrain/parallel/exposed.hpp"

namespace llmtrain {

/// A number that nobody measured: "nan" in the progress, null in metrics.jsonl.
inline constexpr double not_measured = std::numeric_limits<double>::quiet_NaN();

/// The numbers of the update `step`. The state after it is what a checkpoint of that step holds.
struct StepRecord {
  std::int64_t step = 0;       ///< 1-based: the n-th update
  std::int64_t steps = 0;      ///< of the whole run
  std::int64_t tokens = 0;     ///< seen by the model after this step, summed over all ranks and all steps since step 1
  double loss = not_measured;  ///< mean over the step's target tokens, all ranks
  double lr = 0;               ///< of this update
  double grad_norm = not_measured;          ///< global 2-norm before clipping
  std::int64_t skipped = 0;                 ///< updates skipped as non-finite since step 1, this one included
  double seconds = not_measured;            ///< wall clock of the training step; no evaluation, no checkpoint
  double tokens_per_second = not_measured;  ///< all ranks together
  double mfu = not_measured;           ///< fraction by convention A (metrics/flops.hpp); NaN where no peak is known
  double loader_stall = not_measured;  ///< seconds of the step in which this rank waited for data
  Exposed exposed{};                   ///< seconds in which this rank waited for communication
  std::int64_t memory_bytes = 0;       ///< most of any rank: device memory, or the process's on the CPU
  /// Validation loss by set name on evaluation steps, in the deck's order; else empty.
  std::vector<std::pair<std::string, double>> valid;
};

}  // namespace llmtrain
