// SPDX-License-Identifier: Apache-2.0
/// A ring of event pairs.
#include "wait_times.hpp"

#include <utility>

#include "cuda/streams.hpp"

namespace llmtrain {

namespace {

constexpr std::size_t wait_count = 2048;  // pairs in the ring: more than the driver queues on a stream

}  // namespace

WaitTimes::WaitTimes() : ring_(wait_count) {}

WaitTimes::~WaitTimes() {
  for (const Wait& wait : ring_) {
    if (wait.begin != nullptr) cudaEventDestroy(wait.begin);
    if (wait.end != nullptr) cudaEventDestroy(wait.end);
  }
}

void WaitTimes::wait(cudaStream_t stream, cudaEvent_t event, const std::string& group) {
  if (issued_ - read_ == ring_.size()) read(ring_[read_++ % ring_.size()]);
  Wait& wait = ring_[issued_++ % ring_.size()];
  if (wait.begin == nullptr) {
    check_cuda(cudaEventCreate(&wait.begin), "cudaEventCreate");
    check_cuda(cudaEventCreate(&wait.end), "cudaEventCreate");
  }
  wait.group = group;
  check_cuda(cudaEventRecord(wait.begin, stream), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
  check_cuda(cudaEventRecord(wait.end, stream), "cudaEventRecord");
}

void WaitTimes::read(const Wait& wait) {
  check_cuda(cudaEventSynchronize(wait.end), "cudaEventSynchronize");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, wait.begin, wait.end), "cudaEventElapsedTime");
  seconds_[wait.group] += static_cast<double>(milliseconds) * 1e-3;
}

std::map<std::string, double> WaitTimes::take() {
  while (read_ < issued_) read(ring_[read_++ % ring_.size()]);
  issued_ = read_ = 0;  // the same events serve the next step
  return std::exchange(seconds_, {});
}

}  // namespace llmtrain
