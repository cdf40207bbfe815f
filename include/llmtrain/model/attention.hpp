// SPDX-License-Identifier: Apache-2.0
/// Causal self-attention with grouped queries and rotary positions, on this rank's heads.
#pragma once

#include "llmtrain/memory/arena.hpp"
#include "llmtrain/memory/plan.hpp"
#include "llmtrain/model/batch.hpp"
#include "llmtrain/model/shapes.hpp"
#include "llmtrain/parallel/linear.hpp"

namespace llmtrain {

/// What attention keeps for its backward.
struct AttentionSaved {
  Tensor qkv;  // [tokens, (heads + 2 kv_heads) head_dim], q and k rotated
  Tensor out;  // [tokens, heads head_dim], before the output projection
  Tensor lse;  // [heads, tokens]
};

class Attention {
 public:
  Attention(const LocalShapes& shapes, DType stats) : shapes_(shapes), stats_(stats) {}

  /// y [tokens, hidden] of x [tokens, hidden]; `rope` [positions, head_dim / 2, 2] holds cosines and sines.
  void forward(Context& ctx, Tensor y, const AttentionSaved& saved, Tensor x, const Batch& batch, Tensor qkv_weight,
               Tensor o_weight, Tensor rope) const;
  /// d_x [tokens, hidden] of d_y, and both weight gradients.
  void backward(Context& ctx, Tensor d_x, Gradient d_qkv_weight, Gradient d_o_weight, Tensor d_y,
                const AttentionSaved& saved, Tensor x, const Batch& batch, Tensor qkv_weight, Tensor o_weight,
                Tensor rope) const;

 private:
  /// Columns of a packed [tokens, (heads + 2 kv_heads) head_dim] tensor.
  struct Packed {
    Tensor q, k, v;
    Tensor q_and_k;  // what is rotated
  };
  Packed unpack(Tensor qkv) const;
  AttentionOptions options(const Batch& batch) const;

  const LocalShapes& shapes_;
  DType stats_;
  ColumnLinear qkv_;
  RowLinear o_;
};

/// Cosines and sines [positions, head_dim / 2, 2] of RoPE (arXiv 2104.09864) in fp64: angle = position theta^(-2i/head_dim).
std::vector<double> rope_table(const RopeConfig& rope, std::int64_t positions, std::int64_t head_dim);

}  // namespace llmtrain
