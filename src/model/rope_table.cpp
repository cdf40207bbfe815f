// SPDX-License-Identifier: Apache-2.0
/// The table in the device's precision.
#include "llmtrain/model/rope_table.hpp"

#include "llmtrain/model/attention.hpp"

namespace llmtrain {

RopeTable::RopeTable(const ModelConfig& config, DType stats, MemoryPlan& plan) : config_(config) {
  if (config.positions != Positions::rope) return;
  slot_ = plan.request(Segment::params, "rope table", stats, {config.seq_len, config.head_dim / 2, 2});
}

void RopeTable::bind(const Arena& arena, Stream stream) {
  if (!slot_) return;
  tensor_ = arena[slot_];
  if (!stream.device->executes()) return;  // a plan makes many
  const std::vector<double> table = rope_table(config_.rope, config_.seq_len, config_.head_dim);
  if (tensor_.dtype == DType::fp64) {
    stream.device->upload(stream, tensor_, table.data());
    stream.synchronize();
  } else {
    const std::vector<float> rounded(table.begin(), table.end());
    stream.device->upload(stream, tensor_, rounded.data());
    stream.synchronize();
  }
}

}  // namespace llmtrain
