// SPDX-License-Identifier: Apache-2.0
/// What run_step() is made of, for those who look at a step action by action.
#pragma once

#include "llmtrain/driver/step.hpp"

namespace llmtrain {

// In this order; run_action() for each of parts.actions.
void begin_gradients(Parts& parts);
void run_action(Parts& parts, const Action& action, const LoadBatch& load, Timers& timers);
void finish_gradients(Parts& parts, Timers& timers);
void update_weights(Parts& parts, const StepInputs& inputs, Timers& timers);

/// Adds to the totals what this rank counts of a storage's gradient: its squares, and whether all are finite.
void add_squares(Parts& parts, int storage);

}  // namespace llmtrain
