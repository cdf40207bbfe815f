// SPDX-License-Identifier: Apache-2.0
/// The names under a lock: they change a few thousand times a second at most, and nobody ever holds it for long.
#include "llmtrain/base/beacon.hpp"

#include <fmt/ranges.h>

#include <mutex>
#include <utility>
#include <vector>

namespace llmtrain {

namespace {

std::mutex mutex;
std::vector<std::string> ranges;  // from the outermost in
std::string awaited;

}  // namespace

std::atomic<std::uint64_t> Beacon::beats_{0};
std::atomic<std::int64_t> Beacon::step_{0};

Beacon::Reading Beacon::read() {
  const std::lock_guard lock(mutex);
  return {beats_.load(std::memory_order_relaxed), step_.load(std::memory_order_relaxed),
          fmt::format("{}", fmt::join(ranges, "/")), awaited};
}

Beacon::Range::Range(std::string name) {
  const std::lock_guard lock(mutex);
  ranges.push_back(std::move(name));
}

Beacon::Range::~Range() {
  const std::lock_guard lock(mutex);
  ranges.pop_back();
}

Beacon::Wait::Wait(std::string what) {
  const std::lock_guard lock(mutex);
  outer_ = std::exchange(awaited, std::move(what));
}

Beacon::Wait::~Wait() {
  beat();
  const std::lock_guard lock(mutex);
  awaited = std::move(outer_);
}

}  // namespace llmtrain
