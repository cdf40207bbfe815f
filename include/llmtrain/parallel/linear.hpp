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

/// A factor of a layer's products: a matrix, and with precision.linear fp8 the copies that are multiplied in its place. Each
/// copy has the scale of the matrix it was made from: a rank's slice of a weight, and under sequence parallelism a rank's
/// tokens where products take them one rank after the other.
struct Factor {
  Factor(Tensor itself = {}) : matrix(itself) {}
  /// With memory for copies; one of them may be absent.
  Factor(Tensor itself, Tensor copy, Tensor copy_transposed, Tensor scale)
      : matrix(itself), fp8(copy), fp8_transposed(copy_transposed) {
    fp8.scale = fp8_transposed.scale = scale.ptr<float>();
  }
  /// Whether there is something that products can take.
  explicit operator bool() const { return matrix || fp8_transposed; }
  /// Makes the copies.
  void quantize(Context& ctx, Scale known = Scale::unknown) const;

  Tensor matrix;            // [rows, cols]
  Tensor fp8{};             // [rows, cols]
  Tensor fp8_transposed{};  // [cols, rows]
};

/// The elements of a factor that products add up: those of its rows (forward, and of dy for dx), of its columns (of W for
/// dx, and of both for dW), or of either in turn.
enum class SumsOf { rows, columns, both };

/// Activations and weights have more bits of fraction, gradients more of exponent.
inline constexpr DType fp8_of_values = DType::fp8_e4m3, fp8_of_gradients = DType::fp8_e5m2;

/// `matrix` as products take it: with copies from `frame` in `dtype`, one of fp8's, where the context multiplies so. The scale
/// is in `scale` or will be, where that is given.
Factor factor_of(Context& ctx, ScratchStack::Frame& frame, Tensor matrix, DType dtype, SumsOf sums, Tensor scale = {},
                 Scale known = Scale::unknown);

/// The GEMMs of y = x W^T + b alone.
class Linear {
 public:
  void multiply(Context& ctx, Tensor y, const Factor& x, const Factor& weight, Tensor bias = {},
                const FusedGelu& after = {}) const;
  /// dx = dy W, or the gradient of the GeLU's input
  void input_gradient(Context& ctx, Tensor d_x, const Factor& d_y, const Factor& weight,
                      const FusedGelu& before = {}) const;
  /// dW (+)= dy^T x
  void weight_gradient(Context& ctx, Gradient d_weight, const Factor& d_y, const Factor& x) const;
  /// Where there is a bias, db (+)= the sum of dy's rows.
  void bias_gradient(Context& ctx, Gradient d_bias, Tensor d_y) const {
    if (d_bias.tensor) ctx.kernels.bias_gradient(ctx.stream, d_bias.tensor, d_y, d_bias.write);
  }
};

/// Cut by rows of W: of this rank's part of the stream x, y [tokens, out_local] is this rank's columns (qkv, gate_up).
/// Where x has memory for its transposed copy, forward makes that, and backward needs no other form of x; not under
/// sequence parallelism, where backward gathers x.
class ColumnLinear : public Linear {
 public:
  void forward(Context& ctx, Tensor y, const Factor& x, Tensor weight, Tensor bias = {},
               const FusedGelu& after = {}) const;
  void backward(Context& ctx, Tensor d_x, const LinearParams<Gradient>& d, Tensor d_y, const Factor& x,
                Tensor weight) const;
};

/// Cut by columns of W: of this rank's columns x [tokens, in_local], y is this rank's part of the stream, summed over
/// the group (o, down). The transposed copy of x likewise.
class RowLinear : public Linear {
 public:
  /// `bias` may be left to an operation that follows (bias_dropout).
  void forward(Context& ctx, Tensor y, const Factor& x, Tensor weight, Tensor bias = {}) const;
  void backward(Context& ctx, Tensor d_x, const LinearParams<Gradient>& d, Tensor d_y, const Factor& x, Tensor weight,
                const FusedGelu& before = {}) const;
};

}  // namespace llmtrain
