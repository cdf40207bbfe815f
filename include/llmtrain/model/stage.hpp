// SPDX-License-Identifier: Apache-2.0
/// Stage: this rank's layers of the model, borrowing weights and gradients lease by lease.
#pragma once

#include <vector>

#include "llmtrain/model/block.hpp"
#include "llmtrain/model/embedding.hpp"
#include "llmtrain/model/lm_head.hpp"
#include "llmtrain/parallel/stores.hpp"

namespace llmtrain {

/// Sizes of the activation memory of a stage.
struct StageSizes {
  std::int64_t tokens = 0;  ///< of the largest micro-batch
  int slots = 1;            ///< micro-batches whose activations are alive at once
  Keep keep;                ///< of each block
  bool sequence = false;    ///< the stream is cut over the tensor ranks by tokens
};

class Stage {
 public:
  /// `config` must be resolved. Requests activations from `plan`. `seed` keys dropout.
  Stage(const ModelConfig& config, int tensor_rank, int tensor_size, Compute compute, const StageSizes& sizes,
        MemoryPlan& plan, std::uint64_t seed = 0);
  Stage(const Stage&) = delete;  // layers refer to shapes_
  Stage& operator=(const Stage&) = delete;

  /// Takes its memory and writes the RoPE table, if there is one (on `stream`).
  void bind(const Arena& arena, Stream stream);

  /// Forward of one micro-batch; runs the head's loss and backward too, and adds loss and tokens to `totals`.
  void forward(Context& ctx, const Batch& batch, int slot, ParamStore& params, GradStore& grads, Tensor totals);
  /// Backward of the micro-batch whose forward used `slot`.
  void backward(Context& ctx, const Batch& batch, int slot, ParamStore& params, GradStore& grads);
  /// Loss and token count alone, without dropout, added to `totals`; uses the activations of slot 0.
  void evaluate(Context& ctx, const Batch& batch, ParamStore& params, Tensor totals);
  /// logits [n, vocab of this rank] of the batch's last n tokens; uses the activations of slot 0.
  void logits(Context& ctx, const Batch& batch, ParamStore& params, Tensor logits);

  const LocalShapes& shapes() const { return shapes_; }

 private:
  struct SlotMemory {
    std::vector<BlockSlots> blocks;
    Slot gradient;  // [rows of the stream, hidden], of the stream: kept from the head's backward to the stage's
  };
  /// The stream after the blocks is the sum of both; [rows of the stream, hidden].
  struct StreamParts {
    Tensor residual, delta;
  };
  /// Embedding and blocks. What the result needs besides kept activations is taken from `frame`.
  StreamParts run_blocks(Context& ctx, ScratchStack::Frame& frame, const Batch& batch, int slot, ParamStore& params);
  BlockSaved saved(int slot, std::int64_t layer, const Batch& batch) const;
  Tensor stream_gradient(int slot, const Batch& batch) const;

  ModelConfig config_;
  LocalShapes shapes_;
  DType data_;
  DType stats_;
  Embedding embedding_;
  Block block_;  // stateless: one object serves every layer
  LmHead head_;
  std::vector<SlotMemory> slots_;
  Slot rope_slot_;
  Tensor rope_;
  const Arena* arena_ = nullptr;
};

}  // namespace llmtrain
