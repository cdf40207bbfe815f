// SPDX-License-Identifier: Apache-2.0
/// The feed-forward layer, SwiGLU (arXiv 2002.05202) or GeLU, on this rank's columns.
#pragma once

#include "llmtrain/model/param_table.hpp"
#include "llmtrain/model/shapes.hpp"
#include "llmtrain/parallel/linear.hpp"

namespace llmtrain {

/// What the MLP keeps for its backward.
struct MlpSaved {
  Tensor up;         // [tokens, 2 ffn] (gate, up), or [tokens, ffn], the input of GeLU
  Factor activated;  // [tokens, ffn], as the second product takes it
};

class Mlp {
 public:
  Mlp(const LocalShapes& shapes, Activation activation) : shapes_(shapes), activation_(activation) {}

  /// y = (silu(x Wg^T) * (x Wu^T)) Wd^T or gelu(x Wu^T + bu) Wd^T; x, y [rows of the stream, hidden]. The bias of y is
  /// left to the end of the residual branch.
  void forward(Context& ctx, Tensor y, const MlpSaved& saved, const Factor& x, const MlpParams<Tensor>& weights) const;
  /// What backward may have to repeat: both saved tensors, or `activated` alone.
  void expand(Context& ctx, const MlpSaved& saved, const Factor& x, const MlpParams<Tensor>& weights) const;
  void activate(Context& ctx, const MlpSaved& saved) const;
  void backward(Context& ctx, Tensor d_x, const MlpParams<Gradient>& gradients, Tensor d_y, const MlpSaved& saved,
                const Factor& x, const MlpParams<Tensor>& weights) const;

 private:
  Gelu form() const { return activation_ == Activation::gelu ? Gelu::exact : Gelu::tanh; }

  const LocalShapes& shapes_;
  Activation activation_;
  ColumnLinear up_;
  RowLinear down_;
};

}  // namespace llmtrain
