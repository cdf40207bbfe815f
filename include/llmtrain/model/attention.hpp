// SPDX-License-Identifier: Apache-2.0
/// Causal self-attention with grouped queries, optional norms of q and k and rotary positions, on this rank's heads.
#pragma once

#include "llmtrain/memory/arena.hpp"
#include "llmtrain/memory/plan.hpp"
#include "llmtrain/model/batch.hpp"
#include "llmtrain/model/param_table.hpp"
#include "llmtrain/model/shapes.hpp"
#include "llmtrain/parallel/linear.hpp"

namespace llmtrain {

/// What attention keeps for its backward.
struct AttentionSaved {
  Tensor qkv;      // [tokens, (heads + 2 kv_heads) head_dim], q and k rotated unless they are normed first
  Tensor out;      // [tokens, heads head_dim], before the output projection
  Tensor lse;      // [heads, tokens]
  Tensor qk;       // [tokens, (heads + kv_heads) head_dim], q and k normed and rotated; with qk_norm only
  Tensor qk_rstd;  // [tokens (heads + kv_heads)]: of q, then of k
};

class Attention {
 public:
  Attention(const LocalShapes& shapes, double norm_eps, DType stats)
      : shapes_(shapes), norm_eps_(norm_eps), stats_(stats) {}

  /// y of x, both [rows of the stream, hidden], its bias left to the end of the residual branch; `rope`
  /// [positions, head_dim / 2, 2] holds cosines and sines, absent where positions are not rotary.
  void forward(Context& ctx, Tensor y, const AttentionSaved& saved, const Factor& x, const Batch& batch,
               const AttentionParams<Tensor>& weights, Tensor rope) const;
  /// The steps of forward that backward may have to repeat.
  void project(Context& ctx, const AttentionSaved& saved, const Factor& x, const Batch& batch,
               const AttentionParams<Tensor>& weights, Tensor rope) const;
  void attend(Context& ctx, const AttentionSaved& saved, const Batch& batch) const;
  void finish(Context& ctx, Tensor y, const AttentionSaved& saved, const AttentionParams<Tensor>& weights) const;
  /// d_x of d_y, and all gradients of parameters.
  void backward(Context& ctx, Tensor d_x, const AttentionParams<Gradient>& gradients, Tensor d_y,
                const AttentionSaved& saved, const Factor& x, const Batch& batch,
                const AttentionParams<Tensor>& weights, Tensor rope) const;

 private:
  /// Heads of q, k and v in packed tensors.
  struct Packed {
    Tensor q, k, v;
    Tensor q_and_k;  // what is rotated
  };
  /// q and k are the first columns of `qk`, v the last ones of `qkv` [tokens, (heads + 2 kv_heads) head_dim].
  Packed unpack(Tensor qk, Tensor qkv) const;
  void norm_forward(Context& ctx, const AttentionSaved& saved, Tensor weight) const;
  /// In place on the gradients of q and k.
  void norm_backward(Context& ctx, const Packed& d, Gradient d_weight, const AttentionSaved& saved,
                     Tensor weight) const;
  AttentionOptions options(const Batch& batch) const;

  const LocalShapes& shapes_;
  double norm_eps_;
  DType stats_;
  ColumnLinear qkv_;
  RowLinear o_;
};

/// The frequencies [head_dim / 2] of RoPE (arXiv 2104.09864), theta^(-2i/head_dim), with Llama 3.1's scaling of long
/// wavelengths w = 2 pi / f (Hugging Face, rope_type llama3): f for w < original / high_freq_factor, f / factor for
/// w > original / low_freq_factor, between them a mean weighted by (original / w - low) / (high - low).
std::vector<double> rope_frequencies(const RopeConfig& rope, std::int64_t head_dim);

/// Cosines and sines [positions, head_dim / 2, 2] of position x frequency, in fp64.
std::vector<double> rope_table(const RopeConfig& rope, std::int64_t positions, std::int64_t head_dim);

}  // namespace llmtrain
