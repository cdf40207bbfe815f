// SPDX-License-Identifier: Apache-2.0
/// One training step and one evaluation pass, the same sequence on every device.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "llmtrain/base/timer.hpp"
#include "llmtrain/driver/parts.hpp"

namespace llmtrain {

/// Writes micro-batch number `micro_batch` of the step into the device memory of `batch`, and how many documents it has.
using LoadBatch = std::function<void(std::int64_t micro_batch, Batch& batch)>;

/// Forward, backward, reduction and update. Afterwards parts.scalars holds the step's numbers.
void run_step(Parts& parts, const StepInputs& inputs, const LoadBatch& load, Timers& timers);

/// Forward and backward of a step without update: accumulators hold the reduced gradient of the summed loss.
void run_gradients(Parts& parts, const LoadBatch& load, Timers& timers);

/// The computations of a step on whatever the memory holds, without transfers between stages: leaves gradients that the next
/// step overwrites. A GPU may load a kernel, build an attention graph or time products only when all its work is done. Were
/// a receive in that work, whose sender waits for a receive of its own to do the same, no rank would go on.
void warm_up(Parts& parts);

/// The micro-batches that `actions` load, in their order.
std::vector<std::int64_t> load_order(std::span<const Action> actions);

/// Forward passes of `micro_batches` micro-batches.
std::vector<Action> evaluation_actions(const Parts& parts, std::int64_t micro_batches);

/// Adds loss and tokens of `micro_batches` micro-batches over all ranks into parts.totals.
void run_evaluation(Parts& parts, std::int64_t micro_batches, const LoadBatch& load);

}  // namespace llmtrain
