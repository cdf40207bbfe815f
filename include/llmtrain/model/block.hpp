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

/// Which activations of a block live from forward to backward. The others live in scratch memory while the block runs,
/// and backward computes them again by the same operations: the same bits.
struct Keep {
  bool input = true;      ///< the residual before the first norm; else it is kept elsewhere
  bool stream = true;     ///< the residual before the second norm, and the statistics of both norms
  bool norm_out = true;   ///< outputs of both norms
  bool qkv = true;        ///< and q and k as normed
  bool attention = true;  ///< its output and log-sum-exp
  bool up = true;
  bool activated = true;
  /// What only products read (outputs of norms that are not cut by tokens, and of the activation) is kept as the copy that
  /// backward multiplies: half the memory, and the copy is made once.
  bool fp8 = false;

  Keep() = default;
  Keep(const ScheduleConfig& schedule, LinearProducts products);
};

/// Activations of one block and one micro-batch slot; what is not kept is absent.
struct BlockSaved {
  NormSaved norm_1;
  AttentionSaved attention;
  NormSaved norm_2;
  MlpSaved mlp;
};

/// The same as memory requests.
struct BlockSlots {
  BlockSlots(MemoryPlan& plan, const LocalShapes& shapes, std::int64_t tokens, DType data, DType stats,
             const Keep& keep = {});
  /// Views for a micro-batch of `tokens` tokens, `rows` of them this rank's part of the stream.
  BlockSaved bind(const Arena& arena, std::int64_t tokens, std::int64_t rows) const;

  /// Of a factor either the matrix or its transposed copy is kept.
  struct FactorSlots {
    Slot matrix, fp8_transposed, scale;
  };
  /// Slots of what the model does not have, or does not keep, stay empty.
  Slot residual_1, rstd_1, mean_1, qkv, attention, lse, qk, qk_rstd;
  Slot residual_2, rstd_2, mean_2, up;
  FactorSlots out_1, out_2, activated;
};

class Block {
 public:
  Block(const ModelConfig& config, const LocalShapes& shapes, DType stats, Dropout dropout)
      : shapes_(shapes),
        stats_(stats),
        norm_(shapes, config.norm_eps, stats),
        attention_(shapes, config.norm_eps, stats),
        mlp_(shapes, config.activation),
        dropout_(dropout) {}

  /// In: stream = x + delta (delta absent: x must be saved.norm_1.residual). Out: stream =
  /// saved.norm_2.residual + delta_out; delta_out [rows of the stream, hidden] may alias delta. Both residuals must be there. `layer`
  /// keys the dropouts.
  void forward(Context& ctx, const BlockSaved& saved, Tensor x, Tensor delta, Tensor delta_out, const Batch& batch,
               const BlockParams<Tensor>& weights, Tensor rope, std::int64_t layer) const;
  /// gradient [rows of the stream, hidden], in place: of the outgoing stream, then of the incoming one. saved.norm_1.residual must be
  /// there.
  void backward(Context& ctx, Tensor gradient, const BlockSaved& saved, const Batch& batch,
                const BlockParams<Tensor>& weights, const BlockParams<Gradient>& gradients, Tensor rope,
                std::int64_t layer) const;

 private:
  enum class Pass { forward, backward };
  /// Put into scratch memory what is absent of the attention branch, and of the MLP branch.
  void complete_attention(ScratchStack::Frame& frame, BlockSaved& saved, std::int64_t tokens, Pass pass) const;
  void complete_mlp(ScratchStack::Frame& frame, BlockSaved& saved, std::int64_t tokens, Pass pass) const;
  /// The matrix of a factor: forward writes it first, backward has no use for it where there is a copy.
  void complete_factor(ScratchStack::Frame& frame, Factor& factor, DType dtype, std::int64_t rows, std::int64_t cols,
                       Pass pass) const;
  /// Computes again what `kept` lacks; `saved` is complete. The MLP branch of a block that kept its input alone starts
  /// from attention's output; `sum` [rows of the stream, hidden] is memory for it.
  void repeat_attention(Context& ctx, const BlockSaved& saved, const BlockSaved& kept, const Batch& batch,
                        const BlockParams<Tensor>& weights, Tensor rope) const;
  void repeat_mlp(Context& ctx, const BlockSaved& saved, const BlockSaved& kept, const Batch& batch,
                  const BlockParams<Tensor>& weights, Tensor sum, std::int64_t layer) const;
  /// The weights of the matrix products: the bias at the end of a branch is added by its dropout, where there is one.
  BlockParams<Tensor> of_products(const BlockParams<Tensor>& weights, const Batch& batch) const;
  /// The gradient at the end of a branch: that of the stream, through dropout if there is one.
  Tensor branch_gradient(Context& ctx, ScratchStack::Frame& frame, Tensor gradient, const Batch& batch,
                         std::int64_t operation) const;

  const LocalShapes& shapes_;
  DType stats_;
  Norm norm_;
  Attention attention_;
  Mlp mlp_;
  Dropout dropout_;
};

}  // namespace llmtrain
