// SPDX-License-Identifier: Apache-2.0
/// Whole tensors of a run in one HDF5 file, so that other programs can repeat its first steps.
#pragma once

#include <string>

#include "llmtrain/driver/launch.hpp"

namespace llmtrain {

/// Runs steps 1 to `steps` from the initial weights and writes, from rank 0:
///   /tokens /targets [steps, global_batch, seq_len], /weights likewise (of each target's loss);
///   /loss /grad_norm /lr [steps]: mean loss over target tokens, norm of its gradient before clipping;
///   /initial/NAME: parameters before step 1;  /gradients/NAME: gradient of step 1's mean loss, before clipping;
///   /parameters/NAME: parameters after the last step.
/// Parameters are the weights that layers compute with: of precision.compute bf16, the rounded copies.
/// NAME is a section's Hugging Face name as groups; arrays have their true global shape. Collective over the world.
void dump_steps(Launch& launch, std::int64_t steps, const std::string& path);

}  // namespace llmtrain
