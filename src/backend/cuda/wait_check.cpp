// SPDX-License-Identifier: Apache-2.0
/// The blocker around each step.
#include "wait_check.hpp"

#include <fmt/format.h>

#include <thread>

#include "cuda/streams.hpp"
#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

constexpr std::int64_t patience = 2'000'000'000;  // nanoseconds: far more than issuing a step takes
constexpr double start_seconds = 2;

std::size_t memory_left() {
  std::size_t left = 0, all = 0;
  check_cuda(cudaMemGetInfo(&left, &all), "cudaMemGetInfo");
  return left;
}

/// What the kernel sees at once, and the host sees of it.
volatile unsigned& shared(unsigned& flag) { return flag; }

}  // namespace

WaitCheck::WaitCheck(const char* path) : file_(std::fopen(path, "w"), std::fclose) {
  require(file_ != nullptr, ExitCode::cannot_create, "LLMTRAIN_CHECK_WAITS: {} cannot be written", path);
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  void* flags = nullptr;
  check_cuda(cudaHostAlloc(&flags, sizeof(BlockerFlags), cudaHostAllocDefault), "cudaHostAlloc");
  flags_ = new (flags) BlockerFlags;
  launch_blocker(stream_, flags_, 0);  // loads it
  check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

WaitCheck::~WaitCheck() {
  cudaFreeHost(flags_);
  cudaStreamDestroy(stream_);
}

void WaitCheck::beat() { shared(flags_->beat) = flags_->beat + 1; }

void WaitCheck::begin_step() {
  if (++step_ < 2) return;
  *flags_ = {};
  launch_blocker(stream_, flags_, patience);
  const Stopwatch watch;
  while (shared(flags_->running) == 0 && watch.seconds() < start_seconds) {
    std::this_thread::yield();
  }
  allocations_ = 0;
  left_ = memory_left();
}

void WaitCheck::end_step() {
  if (step_ < 2) return;
  const std::int64_t taken = static_cast<std::int64_t>(left_) - static_cast<std::int64_t>(memory_left());
  const bool running = shared(flags_->running) != 0;
  shared(flags_->stop) = 1;
  check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  if (!running) {
    fmt::print(file_.get(), "step {}: not checked, the blocker did not start\n", step_);
  } else {
    fmt::print(file_.get(), "step {}: {} device-wide waits, {} allocations, {} bytes taken\n", step_,
               flags_->starved != 0 ? "1 or more" : "0", allocations_, taken);
  }
  std::fflush(file_.get());
}

}  // namespace llmtrain
