// SPDX-License-Identifier: Apache-2.0
/// WaitTimes: how long streams stand still at waits for collectives, by the GPU's own clock.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <string>
#include <vector>

namespace llmtrain {

/// An event right before a wait and one right after it, on the stream that waits: what lies between them is nothing but
/// the wait. They are read when their time is asked for, or used again; a wait that was none counts a microsecond or two.
class WaitTimes {
 public:
  WaitTimes();
  ~WaitTimes();
  WaitTimes(const WaitTimes&) = delete;
  WaitTimes& operator=(const WaitTimes&) = delete;

  /// Makes `stream` wait for `event`, a batch of the group of this name.
  void wait(cudaStream_t stream, cudaEvent_t event, const std::string& group);
  /// Seconds by group since the last call; the host waits for the last wait.
  std::map<std::string, double> take();

 private:
  struct Wait {
    cudaEvent_t begin = nullptr, end = nullptr;
    std::string group;
  };
  void read(const Wait& wait);

  std::vector<Wait> ring_;
  std::size_t issued_ = 0, read_ = 0;  ///< since the last call of take(); ring_ holds those between
  std::map<std::string, double> seconds_;
};

}  // namespace llmtrain
