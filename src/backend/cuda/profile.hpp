// SPDX-License-Identifier: Apache-2.0
/// OperationProfile: device time by operation and shape, for LLMTRAIN_PROFILE=1 in the environment.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <string>
#include <vector>

#include "cuda/streams.hpp"
#include "llmtrain/backend/observer.hpp"

namespace llmtrain {

/// Marks the stream before every operation; the time to the next mark on it is the operation's, gaps included. Steps end
/// where the host waits; the first ones (warm-up) are left out. The table goes to stderr at the end.
class OperationProfile final : public OpObserver {
 public:
  explicit OperationProfile(const CudaStreams& streams) : streams_(streams) {}
  ~OperationProfile() override;
  OperationProfile(const OperationProfile&) = delete;
  OperationProfile& operator=(const OperationProfile&) = delete;

  void on_operation(const OpNote& note) override;
  void on_batch(const BatchNote&) override {}
  void end_step(Stream stream);  ///< the host has waited for the stream

 private:
  struct Total {
    std::int64_t calls = 0;
    double seconds = 0, bytes = 0, flops = 0;
  };
  struct Mark {
    std::string name;  ///< empty: the end of a step
    int stream;
    double bytes, flops;
  };
  void mark(Mark mark);

  const CudaStreams& streams_;
  std::vector<cudaEvent_t> events_;  ///< one a mark, used again every step
  std::vector<Mark> marks_;
  std::map<std::string, Total> totals_;
  std::int64_t steps_ = 0;
};

}  // namespace llmtrain
