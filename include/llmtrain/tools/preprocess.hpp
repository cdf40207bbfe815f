// SPDX-License-Identifier: Apache-2.0
/// The subcommand `preprocess`: JSON lines to indexed datasets.
#pragma once

#include <span>
#include <string>

namespace llmtrain {

/// Runs `llmtrain preprocess` with the arguments after its name; returns 0, or throws Error with the exit code of
/// `preprocess --help`. Writes PREFIX_KEY_document.{bin,idx,json} for each key, all of them or none.
int tool_preprocess(std::span<const std::string> args);

}  // namespace llmtrain
