// SPDX-License-Identifier: Apache-2.0
/// The order of GEMMs and collectives: what a GEMM does not need moves while it runs, and with sequence parallelism GEMMs
/// take the tokens rank by rank, so that one works on those that are here while others move.
#include "llmtrain/parallel/linear.hpp"

#include "llmtrain/parallel/token_layout.hpp"

namespace llmtrain {

void ColumnLinear::forward(Context& ctx, Tensor y, Tensor x, Tensor weight, Tensor bias, const FusedGelu& after) const {
  ScratchStack::Frame frame(ctx.scratch, "column linear");
  const AllTokens all = gather_tokens(ctx, frame, x);
  for (const TokenPart& part : all.parts) {
    ctx.stream.wait(part.arrival);
    multiply(ctx, part.of(y), part.tensor, weight, bias, {part.of(after.tensor), after.form});
  }
  ctx.stream.wait(all.arrival);
}

void ColumnLinear::backward(Context& ctx, Tensor d_x, const LinearParams<Gradient>& d, Tensor d_y, Tensor x,
                            Tensor weight) const {
  ScratchStack::Frame frame(ctx.scratch, "column linear backward");
  const AllTokens all = gather_tokens(ctx, frame, x);
  TokenSums sums(ctx, frame, d_x, d_y.rows());
  sums.contribute([&](const TokenPart& part) { input_gradient(ctx, part.tensor, part.of(d_y), weight); });
  ctx.stream.wait(all.arrival);
  weight_gradient(ctx, d.weight, d_y, all.tensor);
  bias_gradient(ctx, d.bias, d_y);
  sums.finish();
}

void RowLinear::forward(Context& ctx, Tensor y, Tensor x, Tensor weight, Tensor bias) const {
  if (ctx.tensor.size == 1) return multiply(ctx, y, x, weight, bias);
  ScratchStack::Frame frame(ctx.scratch, "row linear");
  TokenSums sums(ctx, frame, y, x.rows());
  sums.contribute([&](const TokenPart& part) { multiply(ctx, part.tensor, part.of(x), weight); });
  sums.finish();
  if (bias) ctx.kernels.bias_add(ctx.stream, y, y, bias);  // once, not once a rank
}

void RowLinear::backward(Context& ctx, Tensor d_x, const LinearParams<Gradient>& d, Tensor d_y, Tensor x, Tensor weight,
                         const FusedGelu& before) const {
  ScratchStack::Frame frame(ctx.scratch, "row linear backward");
  const AllTokens all = gather_tokens(ctx, frame, d_y);
  bias_gradient(ctx, d.bias, d_y);
  for (const TokenPart& part : all.parts) {
    ctx.stream.wait(part.arrival);
    input_gradient(ctx, part.of(d_x), part.tensor, weight, {part.of(before.tensor), before.form});
  }
  ctx.stream.wait(all.arrival);
  weight_gradient(ctx, d.weight, all.tensor, x);
}

}  // namespace llmtrain
