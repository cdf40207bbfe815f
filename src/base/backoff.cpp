// SPDX-License-Identifier: Apache-2.0
/// Yields first, naps later.
#include "llmtrain/base/backoff.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace llmtrain {

namespace {
std::atomic<bool> cores_are_shared{false};
}  // namespace

void Backoff::share_cores() {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // ns; by default the kernel adds 50 us to each nap
  cores_are_shared = true;
}

void Backoff::pause() {
  constexpr int looks_before_naps = 16;
  constexpr std::chrono::microseconds longest_nap(1000);
  if (looks_ < looks_before_naps || !cores_are_shared) {
    ++looks_;
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(nap_);
    nap_ = std::min(nap_ + nap_ / 4, longest_nap);  // a wait is made longer by at most a quarter
  }
}

}  // namespace llmtrain
