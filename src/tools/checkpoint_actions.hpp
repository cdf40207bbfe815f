// SPDX-License-Identifier: Apache-2.0
/// Actions of `llmtrain checkpoint` that have options of their own; their arguments come after the action's name.
#pragma once

#include "llmtrain/tools/tool.hpp"

namespace llmtrain {

int checkpoint_export(Arguments arguments);
int checkpoint_consolidate(Arguments arguments);
int checkpoint_import(Arguments arguments);

}  // namespace llmtrain
