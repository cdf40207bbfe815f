// SPDX-License-Identifier: Apache-2.0
/// One transformer block: norm, attention, norm, MLP around a residual stream, of any family. Each branch ends with its
/// bias and dropout. Residual additions live in the norms: a block takes the stream as (residual, delta) and hands it on
/// the same way.
#pragma once

#include "llmtrain/model/attention.hpp"
#include "llmtrain/model/dropout.hpp"
#include "llmtrain/model/mlp.hpp"
#include "llmtrain/model/norm.hpp"
#include "llmtrain/model/param_table.hpp"

namespace llmtrain {

/// Activations of one block and one micro-batch slot.
struct BlockSaved {
  NormSaved norm_1;
  AttentionSaved attention;
  NormSaved norm_2;
  MlpSaved mlp;
};

/// The same as memory requests.
struct BlockSlots {
  BlockSlots(MemoryPlan& plan, const LocalShapes& shapes, std::int64_t tokens, DType data, DType stats);
  /// Views of the first `tokens` tokens.
  BlockSaved bind(const Arena& arena, std::int64_t tokens) const;

  /// Slots of what the model does not have stay empty.
  Slot residual_1, rstd_1, out_1, mean_1, qkv, attention, lse, qk, qk_rstd;
  Slot residual_2, rstd_2, out_2, mean_2, up, activated;
};

class Block {
 public:
  Block(const ModelConfig& config, const LocalShapes& shapes, DType stats, Dropout dropout)
      : norm_(shapes, config.norm_eps, stats),
        attention_(shapes, config.norm_eps, stats),
        mlp_(shapes, config.activation),
        dropout_(dropout) {}

  /// In: stream = x + delta (delta absent: x must be saved.norm_1.residual). Out: stream =
  /// saved.norm_2.residual + delta_out; delta_out [tokens, hidden] may alias delta. `layer` keys the dropouts.
  void forward(Context& ctx, const BlockSaved& saved, Tensor x, Tensor delta, Tensor delta_out, const Batch& batch,
               const BlockParams<Tensor>& weights, Tensor rope, std::int64_t layer) const;
  /// gradient [tokens, hidden], in place: of the outgoing stream, then of the incoming one.
  void backward(Context& ctx, Tensor gradient, const BlockSaved& saved, const Batch& batch,
                const BlockParams<Tensor>& weights, const BlockParams<Gradient>& gradients, Tensor rope,
                std::int64_t layer) const;

 private:
  /// The gradient at the end of a branch: that of the stream, through dropout if there is one.
  Tensor branch_gradient(Context& ctx, ScratchStack::Frame& frame, Tensor gradient, const Batch& batch,
                         std::int64_t operation) const;

  Norm norm_;
  Attention attention_;
  Mlp mlp_;
  Dropout dropout_;
};

}  // namespace llmtrain
