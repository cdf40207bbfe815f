// SPDX-License-Identifier: Apache-2.0
/// The handler does what POSIX allows in one: atomics, clock_gettime, _exit.
#include "llmtrain/base/signals.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace llmtrain {

namespace {

constexpr std::int64_t same_request = 20'000'000;  // nanoseconds

// Any thread may be the one that is interrupted, so these are lock-free atomics, not merely volatile.
std::atomic<int> noted{0};
std::atomic<std::int64_t> noted_at{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

std::int64_t nanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

void handle(int number) {
  int none = 0;
  if (noted.compare_exchange_strong(none, number)) {
    noted_at = nanoseconds();
  } else if (noted_at != 0 && nanoseconds() - noted_at > same_request) {
    ::_exit(128 + number);
  }
}

}  // namespace

void note_stop_signals() {
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;  // reads and writes go on
  ::sigemptyset(&action.sa_mask);
  for (const int number : {SIGUSR1, SIGUSR2, SIGTERM}) ::sigaction(number, &action, nullptr);
}

int stop_signal() { return noted; }

std::string signal_name(int number) {
  switch (number) {
    case SIGUSR1: return "SIGUSR1";
    case SIGUSR2: return "SIGUSR2";
    case SIGTERM: return "SIGTERM";
    default: return "signal " + std::to_string(number);
  }
}

}  // namespace llmtrain
