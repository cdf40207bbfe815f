// SPDX-License-Identifier: Apache-2.0
/// Making and closing of streams, and the text of CUDA's errors.
#include "cuda/streams.hpp"

#include "llmtrain/base/error.hpp"

namespace llmtrain {

void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) [[likely]]
    return;
  const ExitCode code = status == cudaErrorMemoryAllocation ? ExitCode::out_of_memory : ExitCode::internal;
  fail(code, "CUDA: {}: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status));
}

void check_launch(const char* operation) { check_cuda(cudaGetLastError(), operation); }

CudaStreams::~CudaStreams() {
  for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
}

int CudaStreams::add(Priority priority) {
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  const int number = priority == Priority::high ? greatest : least;
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, number), "cudaStreamCreate");
  streams_.push_back(stream);
  return static_cast<int>(streams_.size()) - 1;
}

}  // namespace llmtrain
