// SPDX-License-Identifier: Apache-2.0
/// `llmtrain checkpoint`: look at, verify and compare checkpoints.
#pragma once

#include <span>
#include <string>

namespace llmtrain {

/// Runs `checkpoint ls|info|verify|diff|index ...` with the words after "checkpoint". Needs no MPI. Returns 0, or 1 if
/// diff found a difference; throws Error otherwise (usage, missing_input, checkpoint_damaged).
int tool_checkpoint(std::span<const std::string> args);

}  // namespace llmtrain
