// SPDX-License-Identifier: Apache-2.0
/// A kernel that keeps one stream of the GPU busy while the host goes on: what waits for the whole device waits for it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace llmtrain {

/// In pinned host memory; both sides poll it.
struct BlockerFlags {
  unsigned beat = 0;     ///< raised by the host while it runs
  unsigned stop = 0;     ///< set by the host
  unsigned running = 0;  ///< set by the kernel once it runs
  unsigned starved = 0;  ///< set by the kernel when it gives up
};

/// One thread that runs until `stop`, or gives up when `beat` has not changed for so long: the host then waits for it.
void launch_blocker(cudaStream_t stream, BlockerFlags* flags, std::int64_t patience_nanoseconds);

}  // namespace llmtrain
