// SPDX-License-Identifier: Apache-2.0
/// Time differences by the steady clock, so that no change of the machine's clock can reach a number or a decision.
#pragma once

#include <chrono>

namespace llmtrain {

/// Seconds since an arbitrary moment of this process; only differences mean anything.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Measures seconds since it was made or restarted.
class Stopwatch {
 public:
  double seconds() const { return steady_seconds() - start_; }
  void restart() { start_ = steady_seconds(); }

 private:
  double start_ = steady_seconds();
};

}  // namespace llmtrain
