// SPDX-License-Identifier: Apache-2.0
/// Two projections around the activation.
#include "llmtrain/model/mlp.hpp"

namespace llmtrain {

void Mlp::forward(Context& ctx, Tensor y, const MlpSaved& saved, const Factor& x,
                  const MlpParams<Tensor>& weights) const {
  expand(ctx, saved, x, weights);
  down_.forward(ctx, y, saved.activated, weights.down.weight, weights.down.bias);
}

void Mlp::expand(Context& ctx, const MlpSaved& saved, const Factor& x, const MlpParams<Tensor>& weights) const {
  const FusedGelu gelu = shapes_.gated ? FusedGelu{} : FusedGelu{saved.activated.matrix, form()};
  up_.forward(ctx, saved.up, x, weights.up.weight, weights.up.bias, gelu);
  if (shapes_.gated) activate(ctx, saved);
}

void Mlp::activate(Context& ctx, const MlpSaved& saved) const {
  if (shapes_.gated) {
    ctx.kernels.swiglu_forward(ctx.stream, saved.activated.matrix, saved.up);
  } else {
    ctx.kernels.gelu_forward(ctx.stream, saved.activated.matrix, saved.up, form());
  }
}

void Mlp::backward(Context& ctx, Tensor d_x, const MlpParams<Gradient>& gradients, Tensor d_y, const MlpSaved& saved,
                   const Factor& x, const MlpParams<Tensor>& weights) const {
  ScratchStack::Frame frame(ctx.scratch, "mlp backward: up gradient");
  const std::int64_t tokens = saved.up.rows();
  const Tensor d_up = frame.take(d_y.dtype, {tokens, shapes_.up_cols()});
  if (shapes_.gated) {
    ScratchStack::Frame inner(ctx.scratch, "mlp backward");
    const Tensor d_activated = inner.take(d_y.dtype, {tokens, shapes_.ffn});
    down_.backward(ctx, d_activated, gradients.down, d_y, saved.activated, weights.down.weight);
    ctx.kernels.swiglu_backward(ctx.stream, d_up, d_activated, saved.up);
  } else {
    down_.backward(ctx, d_up, gradients.down, d_y, saved.activated, weights.down.weight, {saved.up, form()});
  }
  up_.backward(ctx, d_x, gradients.up, d_up, x, weights.up.weight);
}

}  // namespace llmtrain
