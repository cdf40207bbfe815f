// SPDX-License-Identifier: Apache-2.0
/// `llmtrain generate CHECKPOINT`: text from a trained model, or its logits for comparison with other programs.
#pragma once

#include <span>
#include <string>

namespace llmtrain {

int tool_generate(std::span<const std::string> args);

}  // namespace llmtrain
