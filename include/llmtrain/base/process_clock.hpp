// SPDX-License-Identifier: Apache-2.0
/// The age of this process, by the steady clock: what run.max_walltime counts.
#pragma once

namespace llmtrain {

/// Seconds since this process came near its main().
double process_seconds();

}  // namespace llmtrain
