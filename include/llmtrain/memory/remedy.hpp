// SPDX-License-Identifier: Apache-2.0
/// What to do about a segment that is too large.
#pragma once

#include "llmtrain/memory/plan.hpp"

namespace llmtrain {

/// What makes a segment smaller, as deck keys: "have parallel.zero at ...".
const char* remedy(Segment segment);

}  // namespace llmtrain
