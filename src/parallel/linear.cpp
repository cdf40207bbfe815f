// SPDX-License-Identifier: Apache-2.0
/// The order of GEMMs and collectives: what a GEMM does not need moves while it runs.
#include "llmtrain/parallel/linear.hpp"

#include "llmtrain/parallel/token_layout.hpp"

namespace llmtrain {

void ColumnLinear::forward(Context& ctx, Tensor y, Tensor x, Tensor weight, Tensor bias, const FusedGelu& after) const {
  ScratchStack::Frame frame(ctx.scratch, "column linear");
  const AllTokens all = gather_tokens(ctx, frame, x);
  ctx.stream.wait(all.arrival);
  multiply(ctx, y, all.tensor, weight, bias, after);
}

void ColumnLinear::backward(Context& ctx, Tensor d_x, const LinearParams<Gradient>& d, Tensor d_y, Tensor x,
                            Tensor weight) const {
  ScratchStack::Frame frame(ctx.scratch, "column linear backward");
  const AllTokens all = gather_tokens(ctx, frame, x);
  const Tensor partial = partial_sums(ctx, frame, d_x, d_y.rows());
  input_gradient(ctx, partial, d_y, weight);
  const Event summed = sum_partials(ctx, d_x, partial);
  ctx.stream.wait(all.arrival);
  weight_gradient(ctx, d.weight, d_y, all.tensor);
  bias_gradient(ctx, d.bias, d_y);
  ctx.stream.wait(summed);
}

void RowLinear::forward(Context& ctx, Tensor y, Tensor x, Tensor weight, Tensor bias) const {
  if (ctx.tensor.size == 1) return multiply(ctx, y, x, weight, bias);
  ScratchStack::Frame frame(ctx.scratch, "row linear");
  const Tensor partial = partial_sums(ctx, frame, y, x.rows());
  multiply(ctx, partial, x, weight);
  ctx.stream.wait(sum_partials(ctx, y, partial));
  if (bias) ctx.kernels.bias_add(ctx.stream, y, y, bias);  // once, not once a rank
}

void RowLinear::backward(Context& ctx, Tensor d_x, const LinearParams<Gradient>& d, Tensor d_y, Tensor x, Tensor weight,
                         const FusedGelu& before) const {
  ScratchStack::Frame frame(ctx.scratch, "row linear backward");
  const AllTokens all = gather_tokens(ctx, frame, d_y);
  bias_gradient(ctx, d.bias, d_y);
  ctx.stream.wait(all.arrival);
  input_gradient(ctx, d_x, all.tensor, weight, before);
  weight_gradient(ctx, d.weight, all.tensor, x);
}

}  // namespace llmtrain
