// SPDX-License-Identifier: Apache-2.0
/// RopeTable: the cosines and sines of rotary positions on the device, one table for all stages of a rank.
#pragma once

#include "llmtrain/config/deck.hpp"
#include "llmtrain/memory/arena.hpp"

namespace llmtrain {

class RopeTable {
 public:
  /// Requests memory from `plan`, of dtype `stats`, if the model's positions are rotary.
  RopeTable(const ModelConfig& config, DType stats, MemoryPlan& plan);
  /// Takes the memory and writes the table on `stream`.
  void bind(const Arena& arena, Stream stream);

  /// [seq_len, head_dim / 2, 2], or absent.
  Tensor tensor() const { return tensor_; }

 private:
  ModelConfig config_;
  Slot slot_;
  Tensor tensor_;
};

}  // namespace llmtrain
