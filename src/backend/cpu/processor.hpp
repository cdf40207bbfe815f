// SPDX-License-Identifier: Apache-2.0
/// What this machine's processor is and what it can do at best.
#pragma once

#include <string>

#include "llmtrain/base/dtype.hpp"

namespace llmtrain {

/// One line: model, instruction set, threads and the physical cores they may run on.
std::string describe_processor(int threads);

/// cores used x FLOP/cycle of the instruction set x clock, in FLOP/s; 0 for a type without a rate or an unknown clock.
/// `formula` (optional) receives the factors in words.
double processor_peak_flops(DType precision, int threads, std::string* formula);

}  // namespace llmtrain
