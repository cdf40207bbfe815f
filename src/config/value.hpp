// SPDX-License-Identifier: Apache-2.0
/// One value of the deck's tree into the member that its key points to.
#pragma once

#include "llmtrain/config/key.hpp"
#include "tree.hpp"

namespace llmtrain {

/// Reads `node` as the value of `key` into `deck`; false, with findings, if it is none.
bool read_value(const Key& key, const Node& node, Deck& deck, Findings& findings);

}  // namespace llmtrain
