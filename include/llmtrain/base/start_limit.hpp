// SPDX-License-Identifier: Apache-2.0
/// StartLimit: how long MPI may take to start. Ranks that never come make the others wait for them without a word.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace llmtrain {

/// Ends the process with exit code 81 (hang) and a message if it lives for longer than LLMTRAIN_INIT_TIMEOUT seconds say
/// (600 if not set; 0: for ever).
class StartLimit {
 public:
  /// Throws Error(usage) if the variable holds no number of seconds.
  StartLimit();

 private:
  void wait(const std::stop_token& stop);

  double seconds_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  ///< the last member: it uses the others
};

}  // namespace llmtrain
