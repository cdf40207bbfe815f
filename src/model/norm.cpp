// SPDX-License-Identifier: Apache-2.0
/// Calls of the fused norm kernels with their workspace.
#include "llmtrain/model/norm.hpp"

#include "llmtrain/backend/workspace.hpp"

namespace llmtrain {

void Norm::forward(Context& ctx, const NormSaved& saved, Tensor x, Tensor delta, Tensor weight) const {
  const Tensor sum = delta ? saved.residual : Tensor{};
  if (layer_norm_) {
    const std::int64_t n = x.cols();
    ctx.kernels.layer_norm_forward(ctx.stream, saved.out.matrix, sum, saved.mean, saved.rstd, x, delta,
                                   weight.flat(0, n), weight.flat(n, n), eps_);
  } else {
    ctx.kernels.rms_norm_forward(ctx.stream, saved.out.matrix, sum, saved.rstd, x, delta, weight, eps_);
  }
}

void Norm::backward_into(Context& ctx, Tensor gradient, Tensor incoming, Gradient d_weight, Tensor d_out,
                         const NormSaved& saved, Tensor weight) const {
  ScratchStack::Frame frame(ctx.scratch, "norm backward");
  const std::int64_t n = d_out.cols();
  const auto size = layer_norm_ ? layer_norm_backward_workspace : norm_backward_workspace;
  const Tensor workspace = frame.take(DType::uint8, {size(ctx.stream.device->kind(), d_out.rows(), n, stats_)});
  if (layer_norm_) {
    ctx.kernels.layer_norm_backward(ctx.stream, gradient, d_weight.tensor.flat(0, n), d_weight.tensor.flat(n, n),
                                    incoming, d_out, saved.residual, saved.mean, saved.rstd, weight.flat(0, n),
                                    d_weight.write, workspace);
  } else {
    ctx.kernels.rms_norm_backward(ctx.stream, gradient, d_weight.tensor, incoming, d_out, saved.residual, saved.rstd,
                                  weight, d_weight.write, workspace);
  }
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
