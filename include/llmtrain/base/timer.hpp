// SPDX-License-Identifier: Apache-2.0
/// Named time ranges that nest; they only add up, metrics/timing_table prints them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmtrain/base/beacon.hpp"
#include "llmtrain/base/clock.hpp"

namespace llmtrain {

/// Total time of one range under one parent; `seconds` includes the ranges inside it.
struct TimerTotal {
  std::string path;  ///< names from the outermost in, "step/forward"
  std::int64_t calls = 0;
  double seconds = 0;
};

/// Is told where ranges begin and end, as they nest: marks for profilers.
class RangeObserver {
 public:
  virtual ~RangeObserver() = default;
  virtual void begin(const char* name) = 0;
  virtual void end() = 0;
};

/// The totals of this process's ranges. One thread uses it.
class Timers {
 public:
  /// Told of the ranges of all Timers of the process; null for nobody. To be set while none is open; not owned.
  static void set_observer(RangeObserver* observer) { observer_ = observer; }
  /// All ranges in the order in which they were first opened.
  const std::vector<TimerTotal>& totals() const { return totals_; }
  /// Adds a range that was timed elsewhere, and those inside it: their sum is its time.
  void add(std::string_view name, const std::vector<std::pair<std::string, double>>& inside);
  /// Sets all totals to zero and keeps the names; open ranges count in full when they close.
  void reset();

 private:
  friend class TimerRange;
  static constexpr int top = -1;
  static RangeObserver* observer_;

  int open(std::string_view name);  ///< index of the range, which becomes the current one
  void close(int index, double seconds);

  struct Node {
    std::string name;
    int parent;
  };
  std::vector<TimerTotal> totals_;
  std::vector<Node> nodes_;  ///< beside totals_
  int current_ = top;
};

/// Times from its construction to its destruction: `TimerRange range(timers, "forward");`
class [[nodiscard]] TimerRange {
 public:
  TimerRange(Timers& timers, std::string_view name)
      : timers_(timers), index_(timers.open(name)), beacon_(std::string(name)) {}
  ~TimerRange() { timers_.close(index_, watch_.seconds()); }
  TimerRange(const TimerRange&) = delete;
  TimerRange& operator=(const TimerRange&) = delete;

 private:
  Timers& timers_;
  int index_;
  Beacon::Range beacon_;
  Stopwatch watch_;
};

}  // namespace llmtrain
