// SPDX-License-Identifier: Apache-2.0
/// OperationTimer: seconds of each operation and collective of a step, the fastest of several equal steps.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "llmtrain/backend/observer.hpp"
#include "llmtrain/base/clock.hpp"

namespace llmtrain {

/// Charges the time between the starts of two operations to the first: on the CPU they run at once, and what the host does
/// between them belongs to the step as well.
class OperationTimer final : public OpObserver {
 public:
  struct Sample {
    std::string name;                   ///< of the operation; empty for a batch of collectives
    double m = 0, n = 0, k = 0;         ///< of a matrix product
    double sequence = 0, head_dim = 0;  ///< of attention
    double flops = 0, bytes = 0;
    DType dtype = DType::fp32;  ///< of the first operand
    double seconds = 0;
  };

  void begin_step() {
    next_ = 0;
    watch_.restart();
  }
  void end_step() {
    close();
    ++steps_;
  }
  /// Of the fastest of all steps, place by place.
  const std::vector<Sample>& samples() const { return samples_; }

  void on_operation(const OpNote& note) override;
  void on_batch(const BatchNote&) override { open({}); }

 private:
  void close();
  void open(Sample sample);

  std::vector<Sample> samples_;
  std::size_t next_ = 0;
  int steps_ = 0;
  Stopwatch watch_;
};

}  // namespace llmtrain
