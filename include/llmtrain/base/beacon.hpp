// SPDX-License-Identifier: Apache-2.0
/// Beacon: where the main thread of this process is and whether it gets on, for another thread that watches.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace llmtrain {

/// There is one in a process, as there is one thread that trains.
class Beacon {
 public:
  /// Something is done: an operation issued, a message arrived, bytes read or written. Any thread; one addition.
  static void beat() { beats_.fetch_add(1, std::memory_order_relaxed); }
  static void set_step(std::int64_t step) { step_.store(step, std::memory_order_relaxed); }

  struct Reading {
    std::uint64_t beats = 0;
    std::int64_t step = 0;  ///< 0: before the first
    std::string at;         ///< the ranges it is in, "step/forward"
    std::string waits_for;  ///< "group 'tp'"; empty: for nothing that has a name
  };
  /// From any thread.
  static Reading read();

  /// What the main thread is at, from construction to destruction; they nest.
  class [[nodiscard]] Range {
   public:
    explicit Range(std::string name);
    ~Range();
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
  };

  /// What the main thread waits for, the same way. The end of a wait is a beat.
  class [[nodiscard]] Wait {
   public:
    explicit Wait(std::string what);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    std::string outer_;
  };

 private:
  static std::atomic<std::uint64_t> beats_;
  static std::atomic<std::int64_t> step_;
};

}  // namespace llmtrain
