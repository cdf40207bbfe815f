// SPDX-License-Identifier: Apache-2.0
/// WaitCheck: whether steps wait for the whole device or take memory, for LLMTRAIN_CHECK_WAITS=FILE in the environment.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <memory>

#include "cuda/blocker.hpp"

namespace llmtrain {

/// While a step is under way a kernel on a stream of its own runs until the step's end. A call that waits for the whole
/// device (cudaDeviceSynchronize, cudaFree), of the program or of a library, waits for that kernel, which then gives up and
/// says so. Memory is what the driver has left. The first step loads kernels and plans and is left out. A line a step goes
/// to the file: "step 2: 0 device-wide waits, 0 allocations, 0 bytes taken".
class WaitCheck {
 public:
  explicit WaitCheck(const char* path);
  ~WaitCheck();
  WaitCheck(const WaitCheck&) = delete;
  WaitCheck& operator=(const WaitCheck&) = delete;

  void begin_step();
  void end_step();
  void beat();  ///< the host is not stuck
  void allocated() { ++allocations_; }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  cudaStream_t stream_ = nullptr;
  BlockerFlags* flags_ = nullptr;
  std::int64_t step_ = 0, allocations_ = 0;
  std::size_t left_ = 0;  ///< bytes
};

}  // namespace llmtrain
