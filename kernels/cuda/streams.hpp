// SPDX-License-Identifier: Apache-2.0
/// The CUDA streams behind the seam's value handles, and the check that every CUDA call goes through.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "llmtrain/backend/device.hpp"

namespace llmtrain {

/// Throws Error(internal) naming the call and CUDA's own text unless `status` is success.
void check_cuda(cudaError_t status, const char* call);
/// The same for the kernel that was launched last; errors of its execution show at a later call.
void check_launch(const char* operation);

/// Owns the streams of one device; Stream::id is the index.
class CudaStreams {
 public:
  CudaStreams() = default;
  ~CudaStreams();
  CudaStreams(const CudaStreams&) = delete;
  CudaStreams& operator=(const CudaStreams&) = delete;

  enum class Priority { usual, high };
  int add(Priority priority = Priority::usual);
  cudaStream_t operator[](Stream stream) const { return streams_[static_cast<std::size_t>(stream.id)]; }

 private:
  std::vector<cudaStream_t> streams_;
};

}  // namespace llmtrain
