// SPDX-License-Identifier: Apache-2.0
/// Which rank of the layout sits on which node, as the start-up summary prints it. Arithmetic only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "llmtrain/topology/topology.hpp"

namespace llmtrain {

/// "0-3, 8": ascending numbers with runs drawn together.
std::string ranges(std::span<const int> ascending);

/// One line a node and pipeline stage: "node 0  stage 1  ranks 4-7  data 0-1  tensor 0-1".
std::vector<std::string> placement(const Topology& topology);

/// Says which tensor groups have ranks on several nodes, and what helps; empty if none has.
std::string split_tensor_groups(const Topology& topology);

}  // namespace llmtrain
