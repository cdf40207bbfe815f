// SPDX-License-Identifier: Apache-2.0
/// Stage: one contiguous piece of the model, borrowing weights and gradients lease by lease. A pipeline rank has one a
/// chunk; without a pipeline the piece is the whole model.
#pragma once

#include <vector>

#include "llmtrain/model/block.hpp"
#include "llmtrain/model/embedding.hpp"
#include "llmtrain/model/lm_head.hpp"
#include "llmtrain/model/pieces.hpp"
#include "llmtrain/model/rope_table.hpp"
#include "llmtrain/parallel/stores.hpp"

namespace llmtrain {

/// Sizes of the activation memory of a stage.
struct StageSizes {
  std::int64_t tokens = 0;  ///< of the largest micro-batch
  int slots = 1;            ///< micro-batches whose activations are alive at once
  Keep keep;                ///< of each block
  bool sequence = false;    ///< the stream is cut over the tensor ranks by tokens
};

/// The stream of one micro-batch at the ends of a stage, [rows of the stream, hidden] each. What a piece has no use for is absent.
struct StageEnds {
  Tensor input;   ///< of the first layer; the embedding writes it, or the piece before. Unchanged until after backward
  Tensor output;  ///< of the last layer, for the piece that follows
  Tensor gradient;  ///< backward: of the output, then, in place, of the input. The head writes it in forward
};

class Stage {
 public:
  /// `config` must be resolved. Requests activations from `plan`. `rope` outlives the stage; `seed` keys dropout.
  Stage(const ModelConfig& config, const PieceLeases& leases, int tensor_rank, int tensor_size, Compute compute,
        const StageSizes& sizes, const RopeTable& rope, MemoryPlan& plan, std::uint64_t seed = 0);
  Stage(const Stage&) = delete;  // layers refer to shapes_
  Stage& operator=(const Stage&) = delete;

  void bind(const Arena& arena) { arena_ = &arena; }

  /// Forward of one micro-batch. With the head it runs the head's loss and backward too, and adds loss and tokens to
  /// `totals`.
  void forward(Context& ctx, const Batch& batch, int slot, const StageEnds& ends, ParamStore& params, GradStore& grads,
               Tensor totals);
  /// Backward of the micro-batch whose forward used `slot`.
  void backward(Context& ctx, const Batch& batch, int slot, const StageEnds& ends, ParamStore& params,
                GradStore& grads);
  /// Forward alone, without dropout, in the activations of slot 0. With the head, loss and token count are added to
  /// `totals`.
  void evaluate(Context& ctx, const Batch& batch, const StageEnds& ends, ParamStore& params, Tensor totals);
  /// logits [n, vocab of this rank] of the batch's last n tokens, from a piece that is the whole model; uses the activations
  /// of slot 0.
  void logits(Context& ctx, const Batch& batch, const StageEnds& ends, ParamStore& params, Tensor logits);

  const LocalShapes& shapes() const { return shapes_; }

 private:
  /// The stream after the blocks is the sum of both; [rows of the stream, hidden]. Without blocks there is no delta.
  struct StreamParts {
    Tensor residual, delta;
  };
  /// Embedding and blocks. What the result needs besides kept activations is taken from `frame`.
  StreamParts run_blocks(Context& ctx, ScratchStack::Frame& frame, const Batch& batch, int slot, Tensor input,
                         ParamStore& params);
  void hand_on(Context& ctx, Tensor output, const StreamParts& stream) const;
  /// Activations of the piece's i-th layer.
  BlockSaved saved(int slot, std::int64_t i, const Batch& batch, Tensor input) const;

  ModelConfig config_;
  PieceLeases leases_;
  const ModelPiece& piece_ = leases_.piece;
  LocalShapes shapes_;
  DType data_;
  DType stats_;
  Embedding embedding_;
  Block block_;  // stateless: one object serves every layer
  LmHead head_;
  Keep keep_;
  std::vector<std::vector<BlockSlots>> slots_;  // by slot and layer of the piece
  const RopeTable& rope_;
  const Arena* arena_ = nullptr;
};

}  // namespace llmtrain
