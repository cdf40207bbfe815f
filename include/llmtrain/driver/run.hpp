// SPDX-License-Identifier: Apache-2.0
/// A training run from its launch to its last checkpoint.
#pragma once

#include "llmtrain/base/log.hpp"
#include "llmtrain/driver/launch.hpp"

namespace llmtrain {

/// Trains as the launch's deck says: initial state or checkpoint, steps, evaluations, saves, progress. Returns the exit
/// code: done, or requeue (75) after a save that a signal or run.max_walltime asked for (128 + the signal's number if
/// checkpoint.every is 0). Throws AgreedError: diverged, io_error for a last save that failed, checkpoint_damaged before
/// the first step. Collective over the world.
int run_training(Launch& launch, Logger& log);

}  // namespace llmtrain
