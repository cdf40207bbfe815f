// SPDX-License-Identifier: Apache-2.0
/// The blocker's kernel.
#include "cuda/blocker.hpp"

#include "cuda/streams.hpp"

namespace llmtrain {

namespace {

__device__ std::int64_t nanoseconds() {
  std::int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void blocker_kernel(volatile BlockerFlags* flags, std::int64_t patience) {
  flags->running = 1;
  unsigned beat = flags->beat;
  std::int64_t heard = nanoseconds();
  while (flags->stop == 0) {
    __nanosleep(1000);
    const std::int64_t now = nanoseconds();
    if (const unsigned next = flags->beat; next != beat) {
      beat = next;
      heard = now;
    } else if (now - heard > patience) {
      flags->starved = 1;
      return;
    }
  }
}

}  // namespace

void launch_blocker(cudaStream_t stream, BlockerFlags* flags, std::int64_t patience_nanoseconds) {
  blocker_kernel<<<1, 1, 0, stream>>>(flags, patience_nanoseconds);
  check_launch("blocker");
}

}  // namespace llmtrain
