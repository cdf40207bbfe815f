// SPDX-License-Identifier: Apache-2.0
/// Calls of the fused norm kernels with their workspace.
#include "llmtrain/model/norm.hpp"

#include "llmtrain/backend/workspace.hpp"

namespace llmtrain {

void Norm::forward(Context& ctx, const NormSaved& saved, Tensor x, Tensor delta, Tensor weight) const {
  ctx.kernels.rms_norm_forward(ctx.stream, saved.out, delta ? saved.residual : Tensor{}, saved.rstd, x, delta, weight,
                               eps_);
}

void Norm::backward_into(Context& ctx, Tensor gradient, Tensor incoming, Gradient d_weight, Tensor d_out,
                         const NormSaved& saved, Tensor weight) const {
  ScratchStack::Frame frame(ctx.scratch, "norm backward");
  const Tensor workspace = frame.take(
      DType::uint8, {norm_backward_workspace(ctx.stream.device->kind(), d_out.rows(), d_out.cols(), stats_)});
  ctx.kernels.rms_norm_backward(ctx.stream, gradient, d_weight.tensor, incoming, d_out, saved.residual, saved.rstd,
                                weight, d_weight.write, workspace);
}

void Norm::backward(Context& ctx, Tensor gradient, Gradient d_weight, Tensor d_out, const NormSaved& saved,
                    Tensor weight) const {
  backward_into(ctx, gradient, gradient, d_weight, d_out, saved, weight);
}

void Norm::backward_last(Context& ctx, Tensor gradient, Gradient d_weight, Tensor d_out, const NormSaved& saved,
                         Tensor weight) const {
  backward_into(ctx, gradient, Tensor{}, d_weight, d_out, saved, weight);
}

}  // namespace llmtrain
