// SPDX-License-Identifier: Apache-2.0
/// Places of a step and their fastest times.
#include "operation_timer.hpp"

#include "llmtrain/base/error.hpp"
#include "llmtrain/plan/costs.hpp"

namespace llmtrain {

void OperationTimer::on_operation(const OpNote& note) {
  Sample sample{.name = note.name, .flops = note.flops, .bytes = moved_bytes(note)};
  if (!note.reads.empty()) sample.dtype = note.reads[0].dtype;
  if (sample.name == "gemm") {
    sample.m = static_cast<double>(note.writes[0].rows());
    sample.n = static_cast<double>(note.writes[0].cols());
    sample.k = note.flops / (2 * sample.m * sample.n);
  } else if (note.flops > 0) {
    sample.sequence = attention_sequence(note);
    sample.head_dim = static_cast<double>(note.writes[0].extent[2]);
  }
  open(std::move(sample));
}

void OperationTimer::close() {
  if (next_ == 0) return;  // what comes before the first operation
  Sample& last = samples_[next_ - 1];
  const double seconds = watch_.seconds();
  last.seconds = steps_ == 0 ? seconds : std::min(last.seconds, seconds);
}

void OperationTimer::open(Sample sample) {
  close();
  if (steps_ == 0) samples_.push_back(std::move(sample));
  ++next_;
  LLMTRAIN_CHECK(next_ <= samples_.size());
  watch_.restart();
}

}  // namespace llmtrain
