// SPDX-License-Identifier: Apache-2.0
/// The start of the process, taken before main.
#include "llmtrain/base/process_clock.hpp"

#include "llmtrain/base/clock.hpp"

namespace llmtrain {

namespace {

const Stopwatch since_start;

}  // namespace

double process_seconds() { return since_start.seconds(); }

}  // namespace llmtrain
