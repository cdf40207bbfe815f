// SPDX-License-Identifier: Apache-2.0
/// Linear layers cut over the tensor group. They own the GEMMs and, between them, the collectives of tensor and
/// sequence parallelism; at tensor size 1 there are none.
///
/// |                          | forward                           | backward                                        |
/// |--------------------------|-----------------------------------|-------------------------------------------------|
/// | ColumnLinear             | -                                 | all-reduce of dx beside dW                      |
/// | RowLinear                | all-reduce of y                   | -                                               |
/// | ColumnLinear, sequence   | gathers x beside y of tokens that | gathers x beside dx; sums of dx leave beside dx |
/// |                          | are here                          | of other ranks' tokens, and beside dW           |
/// | RowLinear, sequence      | sums of y leave beside y of other | gathers dy beside dx of tokens that are here    |
/// |                          | ranks' tokens                     |                                                 |
#pragma once

#include "llmtrain/parallel/context.hpp"

namespace llmtrain {

/// Storage tensors of a linear layer; T is Tensor for weights, Gradient for accumulators. Without a bias it is T{}.
template <class T>
struct LinearParams {
  T weight;  // [out, in], stored [out_local, in_local]
  T bias{};  // [out_local]
};

/// A GeLU between two linear layers that their GEMMs take along: `tensor` is its output where it follows a layer, its input
/// where it comes before one. None without a tensor.
struct FusedGelu {
  Tensor tensor;
  Gelu form = Gelu::tanh;
};

/// The GEMMs of y = x W^T + b alone.
class Linear {
 public:
  void multiply(Context& ctx, Tensor y, Tensor x, Tensor weight, Tensor bias = {}, const FusedGelu& after = {}) const {
    if (after.tensor) return ctx.kernels.gemm_gelu_forward(ctx.stream, after.tensor, y, x, weight, bias, after.form);
    ctx.kernels.gemm(ctx.stream, GemmForm::nt, y, x, weight, Write::overwrite, bias);
  }
  /// dx = dy W, or the gradient of the GeLU's input
  void input_gradient(Context& ctx, Tensor d_x, Tensor d_y, Tensor weight, const FusedGelu& before = {}) const {
    if (before.tensor) return ctx.kernels.gemm_gelu_backward(ctx.stream, d_x, d_y, weight, before.tensor, before.form);
    ctx.kernels.gemm(ctx.stream, GemmForm::nn, d_x, d_y, weight);
  }
  /// dW (+)= dy^T x
  void weight_gradient(Context& ctx, Gradient d_weight, Tensor d_y, Tensor x) const {
    ctx.kernels.gemm(ctx.stream, GemmForm::tn, d_weight.tensor, d_y, x, d_weight.write);
  }
  /// Where there is a bias, db (+)= the sum of dy's rows.
  void bias_gradient(Context& ctx, Gradient d_bias, Tensor d_y) const {
    if (d_bias.tensor) ctx.kernels.bias_gradient(ctx.stream, d_bias.tensor, d_y, d_bias.write);
  }
};

/// Cut by rows of W: of this rank's part of the stream x, y [tokens, out_local] is this rank's columns (qkv, gate_up).
class ColumnLinear : public Linear {
 public:
  void forward(Context& ctx, Tensor y, Tensor x, Tensor weight, Tensor bias = {}, const FusedGelu& after = {}) const;
  void backward(Context& ctx, Tensor d_x, const LinearParams<Gradient>& d, Tensor d_y, Tensor x, Tensor weight) const;
};

/// Cut by columns of W: of this rank's columns x [tokens, in_local], y is this rank's part of the stream, summed over
/// the group (o, down).
class RowLinear : public Linear {
 public:
  /// `bias` may be left to an operation that follows (bias_dropout).
  void forward(Context& ctx, Tensor y, Tensor x, Tensor weight, Tensor bias = {}) const;
  void backward(Context& ctx, Tensor d_x, const LinearParams<Gradient>& d, Tensor d_y, Tensor x, Tensor weight,
                const FusedGelu& before = {}) const;
};

}  // namespace llmtrain
