// SPDX-License-Identifier: Apache-2.0
/// The SwiGLU feed-forward layer (arXiv 2002.05202), on this rank's columns.
#pragma once

#include "llmtrain/model/shapes.hpp"
#include "llmtrain/parallel/linear.hpp"

namespace llmtrain {

/// What the MLP keeps for its backward.
struct MlpSaved {
  Tensor gate_up;    // [tokens, 2 ffn]
  Tensor activated;  // [tokens, ffn]
};

class Mlp {
 public:
  explicit Mlp(const LocalShapes& shapes) : shapes_(shapes) {}

  /// y = (silu(x Wg^T) * (x Wu^T)) Wd^T; x, y [tokens, hidden].
  void forward(Context& ctx, Tensor y, const MlpSaved& saved, Tensor x, Tensor gate_up_weight,
               Tensor down_weight) const;
  void backward(Context& ctx, Tensor d_x, Gradient d_gate_up_weight, Gradient d_down_weight, Tensor d_y,
                const MlpSaved& saved, Tensor x, Tensor gate_up_weight, Tensor down_weight) const;

 private:
  const LocalShapes& shapes_;
  ColumnLinear gate_up_;
  RowLinear down_;
};

}  // namespace llmtrain
