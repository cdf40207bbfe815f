// SPDX-License-Identifier: Apache-2.0
/// Two projections around the gated activation.
#include "llmtrain/model/mlp.hpp"

namespace llmtrain {

void Mlp::forward(Context& ctx, Tensor y, const MlpSaved& saved, Tensor x, Tensor gate_up_weight,
                  Tensor down_weight) const {
  gate_up_.forward(ctx, saved.gate_up, x, gate_up_weight);
  ctx.kernels.swiglu_forward(ctx.stream, saved.activated, saved.gate_up);
  down_.forward(ctx, y, saved.activated, down_weight);
}

void Mlp::backward(Context& ctx, Tensor d_x, Gradient d_gate_up_weight, Gradient d_down_weight, Tensor d_y,
                   const MlpSaved& saved, Tensor x, Tensor gate_up_weight, Tensor down_weight) const {
  ScratchStack::Frame frame(ctx.scratch, "mlp backward: gate_up gradient");
  const Tensor d_gate_up = frame.take(x.dtype, {x.rows(), 2 * shapes_.ffn});
  {
    ScratchStack::Frame inner(ctx.scratch, "mlp backward");
    const Tensor d_activated = inner.take(x.dtype, {x.rows(), shapes_.ffn});
    down_.backward(ctx, d_activated, d_down_weight, d_y, saved.activated, down_weight);
    ctx.kernels.swiglu_backward(ctx.stream, d_gate_up, d_activated, saved.gate_up);
  }
  gate_up_.backward(ctx, d_x, d_gate_up_weight, d_gate_up, x, gate_up_weight);
}

}  // namespace llmtrain
