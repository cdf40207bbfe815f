// SPDX-License-Identifier: Apache-2.0
/// The order of GEMMs and collectives: what a GEMM does not need moves while it runs, and with sequence parallelism GEMMs
/// take the tokens rank by rank, so that one works on those that are here while others move.
#include "llmtrain/parallel/linear.hpp"

#include "llmtrain/parallel/fp8_weights.hpp"
#include "llmtrain/parallel/token_layout.hpp"

namespace llmtrain {

void Factor::quantize(Context& ctx, Scale known) const {
  ctx.kernels.quantize(ctx.stream, fp8, fp8_transposed, fp8.scale_tensor(), matrix, known);
}

Factor factor_of(Context& ctx, ScratchStack::Frame& frame, Tensor matrix, DType dtype, SumsOf sums, Tensor scale,
                 Scale known) {
  if (ctx.fp8 == nullptr) return matrix;
  const std::int64_t rows = matrix.rows(), cols = matrix.cols();
  if (!scale) scale = frame.take(DType::fp32, {1});
  const Tensor copy = sums != SumsOf::columns ? frame.take(dtype, {rows, cols}) : Tensor{};
  const Tensor transposed = sums != SumsOf::rows ? frame.take(dtype, {cols, rows}) : Tensor{};
  const Factor factor(matrix, copy, transposed, scale);
  factor.quantize(ctx, known);
  return factor;
}

namespace {

Factor weight_factor(Context& ctx, ScratchStack::Frame& frame, Tensor weight, SumsOf sums) {
  return ctx.fp8 != nullptr ? ctx.fp8->factor(ctx, frame, weight, sums) : Factor(weight);
}

/// An input in forward: its rows, and where it has memory for them its columns, which backward finds there.
Factor forward_factor(Context& ctx, ScratchStack::Frame& frame, Tensor rows, const Factor& x) {
  if (!x.fp8_transposed) return factor_of(ctx, frame, rows, fp8_of_values, SumsOf::rows);
  LLMTRAIN_CHECK(rows.rows() == x.fp8_transposed.cols());
  const Factor factor(rows, frame.take(fp8_of_values, {rows.rows(), rows.cols()}), x.fp8_transposed,
                      x.fp8_transposed.scale_tensor());
  factor.quantize(ctx);
  return factor;
}

/// An input in backward, where its columns are added up.
Factor backward_factor(Context& ctx, ScratchStack::Frame& frame, Tensor all, const Factor& x) {
  return x.fp8_transposed ? x : factor_of(ctx, frame, all, fp8_of_values, SumsOf::columns);
}

/// The rows of a part, to be added up along them.
Factor rows_of(const TokenPart& part, const Factor& all) {
  Factor factor(part.of(all.matrix));
  factor.fp8 = part.of(all.fp8);
  return factor;
}

}  // namespace

void Linear::multiply(Context& ctx, Tensor y, const Factor& x, const Factor& weight, Tensor bias,
                      const FusedGelu& after) const {
  Kernels& kernels = ctx.kernels;
  if (!x.fp8) {
    if (after.tensor)
      return kernels.gemm_gelu_forward(ctx.stream, after.tensor, y, x.matrix, weight.matrix, bias, after.form);
    return kernels.gemm(ctx.stream, GemmForm::nt, y, x.matrix, weight.matrix, Write::overwrite, bias);
  }
  kernels.gemm(ctx.stream, GemmForm::nt, y, x.fp8, weight.fp8);
  if (bias) kernels.bias_add(ctx.stream, y, y, bias);
  if (after.tensor) kernels.gelu_forward(ctx.stream, after.tensor, y, after.form);
}

void Linear::input_gradient(Context& ctx, Tensor d_x, const Factor& d_y, const Factor& weight,
                            const FusedGelu& before) const {
  Kernels& kernels = ctx.kernels;
  if (!d_y.fp8) {
    if (!before.tensor) return kernels.gemm(ctx.stream, GemmForm::nn, d_x, d_y.matrix, weight.matrix);
    return kernels.gemm_gelu_backward(ctx.stream, d_x, d_y.matrix, weight.matrix, before.tensor, before.form);
  }
  kernels.gemm(ctx.stream, GemmForm::nt, d_x, d_y.fp8, weight.fp8_transposed);
  if (before.tensor) kernels.gelu_backward(ctx.stream, d_x, d_x, before.tensor, before.form);
}

void Linear::weight_gradient(Context& ctx, Gradient d_weight, const Factor& d_y, const Factor& x) const {
  const bool fp8 = static_cast<bool>(d_y.fp8_transposed);
  ctx.kernels.gemm(ctx.stream, fp8 ? GemmForm::nt : GemmForm::tn, d_weight.tensor,
                   fp8 ? d_y.fp8_transposed : d_y.matrix, fp8 ? x.fp8_transposed : x.matrix, d_weight.write);
}

void ColumnLinear::forward(Context& ctx, Tensor y, const Factor& x, Tensor weight, Tensor bias,
                           const FusedGelu& after) const {
  ScratchStack::Frame frame(ctx.scratch, "column linear");
  const AllTokens all = gather_tokens(ctx, frame, x.matrix);
  const Factor w = weight_factor(ctx, frame, weight, SumsOf::rows);
  for (const TokenPart& part : all.parts) {
    ctx.stream.wait(part.arrival);
    ScratchStack::Frame of_part(ctx.scratch, "tokens of a rank");
    const Factor rows = forward_factor(ctx, of_part, part.tensor, x);
    multiply(ctx, part.of(y), rows, w, bias, {part.of(after.tensor), after.form});
  }
  ctx.stream.wait(all.arrival);
}

void ColumnLinear::backward(Context& ctx, Tensor d_x, const LinearParams<Gradient>& d, Tensor d_y, const Factor& x,
                            Tensor weight) const {
  ScratchStack::Frame frame(ctx.scratch, "column linear backward");
  const AllTokens all = gather_tokens(ctx, frame, x.matrix);
  TokenSums sums(ctx, frame, d_x, d_y.rows());
  const Factor gradient = factor_of(ctx, frame, d_y, fp8_of_gradients, SumsOf::both);
  const Factor w = weight_factor(ctx, frame, weight, SumsOf::columns);
  sums.contribute([&](const TokenPart& part) { input_gradient(ctx, part.tensor, rows_of(part, gradient), w); });
  ctx.stream.wait(all.arrival);
  weight_gradient(ctx, d.weight, gradient, backward_factor(ctx, frame, all.tensor, x));
  bias_gradient(ctx, d.bias, d_y);
  sums.finish();
}

void RowLinear::forward(Context& ctx, Tensor y, const Factor& x, Tensor weight, Tensor bias) const {
  ScratchStack::Frame frame(ctx.scratch, "row linear");
  const Factor all = forward_factor(ctx, frame, x.matrix, x);
  const Factor w = weight_factor(ctx, frame, weight, SumsOf::rows);
  if (ctx.tensor.size == 1) return multiply(ctx, y, all, w, bias);
  TokenSums sums(ctx, frame, y, x.matrix.rows());
  sums.contribute([&](const TokenPart& part) { multiply(ctx, part.tensor, rows_of(part, all), w); });
  sums.finish();
  if (bias) ctx.kernels.bias_add(ctx.stream, y, y, bias);  // once, not once a rank
}

void RowLinear::backward(Context& ctx, Tensor d_x, const LinearParams<Gradient>& d, Tensor d_y, const Factor& x,
                         Tensor weight, const FusedGelu& before) const {
  ScratchStack::Frame frame(ctx.scratch, "row linear backward");
  const AllTokens all = gather_tokens(ctx, frame, d_y);
  bias_gradient(ctx, d.bias, d_y);
  const Factor w = weight_factor(ctx, frame, weight, SumsOf::columns);
  const auto dx = [&](const TokenPart& part, const Factor& gradient) {
    input_gradient(ctx, part.of(d_x), gradient, w, {part.of(before.tensor), before.form});
  };
  Factor gradient(all.tensor);
  if (all.parts.size() == 1) {  // is there at once: one scale for both products
    gradient = factor_of(ctx, frame, all.tensor, fp8_of_gradients, SumsOf::both);
    dx(all.parts.front(), gradient);
  } else {
    for (const TokenPart& part : all.parts) {
      ctx.stream.wait(part.arrival);
      ScratchStack::Frame of_part(ctx.scratch, "tokens of a rank");
      dx(part, factor_of(ctx, of_part, part.tensor, fp8_of_gradients, SumsOf::rows));
    }
    ctx.stream.wait(all.arrival);
    gradient = factor_of(ctx, frame, all.tensor, fp8_of_gradients, SumsOf::columns);
  }
  weight_gradient(ctx, d.weight, gradient, backward_factor(ctx, frame, x.matrix, x));
}

}  // namespace llmtrain
