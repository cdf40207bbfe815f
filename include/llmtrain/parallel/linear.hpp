// SPDX-License-Identifier: Apache-2.0
/// Linear layers cut over the tensor group. They own the GEMMs and, between them, the collectives of tensor and
/// sequence parallelism; at tensor size 1 there are none.
#pragma once

#include "llmtrain/parallel/context.hpp"

namespace llmtrain {

/// Storage tensors of a linear layer; T is Tensor for weights, Gradient for accumulators. Without a bias it is T{}.
template <class T>
struct LinearParams {
  T weight;  // [out, in], stored [out_local, in_local]
  T bias{};  // [out_local]
};

/// y = x W^T + b.
class Linear {
 public:
  /// `bias` may be left to an operation that follows (gelu, bias_dropout), which then saves a pass over y.
  void forward(Context& ctx, Tensor y, Tensor x, Tensor weight, Tensor bias = {}) const {
    ctx.kernels.gemm(ctx.stream, GemmForm::nt, y, x, weight);
    if (bias) ctx.kernels.bias_add(ctx.stream, y, y, bias);
  }
  /// dx = dy W, dW (+)= dy^T x and, where there is a bias, db (+)= the sum of dy's rows.
  void backward(Context& ctx, Tensor d_x, const LinearParams<Gradient>& d, Tensor d_y, Tensor x, Tensor weight) const {
    ctx.kernels.gemm(ctx.stream, GemmForm::nn, d_x, d_y, weight);
    ctx.kernels.gemm(ctx.stream, GemmForm::tn, d.weight.tensor, d_y, x, d.weight.write);
    if (d.bias.tensor) ctx.kernels.bias_gradient(ctx.stream, d.bias.tensor, d_y, d.bias.write);
  }
};

/// Cut by rows of W: the output is this rank's columns of y (qkv, gate_up).
class ColumnLinear : public Linear {};

/// Cut by columns of W: the input is this rank's columns of x, the outputs add up over the group (o, down).
class RowLinear : public Linear {};

}  // namespace llmtrain
