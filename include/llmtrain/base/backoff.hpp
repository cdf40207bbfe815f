// SPDX-License-Identifier: Apache-2.0
/// Waiting for other ranks without taking the core from them.
#pragma once

#include <chrono>

namespace llmtrain {

/// What a loop that polls does between two looks. The core is offered to others at first; where ranks share cores
/// (share_cores), a wait that lasts sleeps in short naps: the scheduler gives a rank that only yields as much of a core
/// as one that computes.
class Backoff {
 public:
  void pause();
  void reset() { *this = {}; }  ///< something happened: the next wait begins anew

  /// Tells all loops of this process that more ranks run on this node than it has cores for them.
  static void share_cores();

 private:
  int looks_ = 0;
  std::chrono::microseconds nap_{30};
};

}  // namespace llmtrain
