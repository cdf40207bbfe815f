// SPDX-License-Identifier: Apache-2.0
/// Fault points: places where the environment variable LLMTRAIN_INJECT makes this process fail, so that tests can prove
/// what survives. In every build; without the variable a point costs one comparison.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace llmtrain {

/// A place by its name, and what is about to happen there.
struct FaultPoint {
  std::string_view name;
  std::string_view meaning;
};

/// All of them, in the order in which a run passes them.
std::span<const FaultPoint> fault_points();

/// Reads LLMTRAIN_INJECT for the rank with this number; without the variable nothing is armed. Returns a line that says
/// what will happen, "" for nothing. Throws Error(usage) for a text that is not understood. Call it before threads start.
std::string arm_faults(int rank);

/// The step that points of this thread belong to from here on.
void set_fault_step(std::int64_t step);

/// True if the work at this point must fail now; does not come back where the process is to be killed. The name must be
/// one of fault_points().
bool fault_at(std::string_view name);

/// As fault_at, but a failure is thrown as Error(io_error).
void fault_point(std::string_view name);

/// The text of `llmtrain help inject`.
std::string faults_help();

}  // namespace llmtrain
