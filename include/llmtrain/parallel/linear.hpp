// SPDX-License-Identifier: Apache-2.0
/// Linear layers cut over the tensor group. They own the GEMMs and, between them, the collectives of tensor and
/// sequence parallelism; at tensor size 1 there are none.
#pragma once

#include "llmtrain/parallel/context.hpp"

namespace llmtrain {

/// y = x W^T with W [out, in] stored [out_local, in_local].
class Linear {
 public:
  void forward(Context& ctx, Tensor y, Tensor x, Tensor weight) const {
    ctx.kernels.gemm(ctx.stream, GemmForm::nt, y, x, weight);
  }
  /// dx = dy W and dW (+)= dy^T x.
  void backward(Context& ctx, Tensor d_x, Gradient d_weight, Tensor d_y, Tensor x, Tensor weight) const {
    ctx.kernels.gemm(ctx.stream, GemmForm::nn, d_x, d_y, weight);
    ctx.kernels.gemm(ctx.stream, GemmForm::tn, d_weight.tensor, d_y, x, d_weight.write);
  }
};

/// Cut by rows of W: the output is this rank's columns of y (qkv, gate_up).
class ColumnLinear : public Linear {};

/// Cut by columns of W: the input is this rank's columns of x, the outputs add up over the group (o, down).
class RowLinear : public Linear {};

}  // namespace llmtrain
