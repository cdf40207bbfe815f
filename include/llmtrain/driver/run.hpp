// SPDX-License-Identifier: Apache-2.0
/// A training run from its launch to its last checkpoint.
#pragma once

#include "llmtrain/base/log.hpp"
#include "llmtrain/driver/launch.hpp"

namespace llmtrain {

/// Trains as the launch's deck says: initial state or checkpoint, steps, evaluations, saves, progress. Collective over
/// the world.
void run_training(Launch& launch, Logger& log);

}  // namespace llmtrain
