// SPDX-License-Identifier: Apache-2.0
/// Inference: the model of a checkpoint on one rank, weights and one sequence's activations only; for sampling and for
/// comparing logits with other programs.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/config/deck.hpp"
#include "llmtrain/memory/scratch.hpp"
#include "llmtrain/model/stage.hpp"

namespace llmtrain {

class Inference {
 public:
  /// `deck` must be resolved; its seq_len is the longest context. `scratch_bytes` 0 measures the need (trace back end).
  Inference(const Deck& deck, Device& device, std::int64_t scratch_bytes);
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

  /// Reads the weights of a checkpoint.
  void load(const Checkpoint& checkpoint);
  /// Logits [positions, vocab] in fp32 of the last `positions` of `tokens`, true vocabulary only.
  std::vector<float> logits(std::span<const std::int32_t> tokens, std::int64_t positions);

  std::int64_t scratch_high_water() const { return scratch_->high_water(); }

 private:
  const Deck deck_;
  Device& device_;
  const Stream stream_;
  const ParamTable table_;
  const StoreShape shape_;
  MemoryPlan plan_;
  ParamStore params_;
  RopeTable rope_;
  Stage stage_;
  const Slot input_slot_;
  const Slot tokens_slot_;
  const Slot positions_slot_;
  const Slot logits_slot_;
  const Slot kernels_slot_;
  const Slot scratch_slot_;
  const Arena arena_;
  std::unique_ptr<ScratchStack> scratch_;
};

/// Inference on `device`, with its scratch memory measured first.
std::unique_ptr<Inference> make_inference(const Deck& deck, Device& device);

}  // namespace llmtrain
