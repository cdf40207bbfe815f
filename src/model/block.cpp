// SPDX-License-Identifier: Apache-2.0
/// The block reads as its formula; what it keeps is requested here and nowhere else.
#include "llmtrain/model/block.hpp"

namespace llmtrain {

BlockSlots::BlockSlots(MemoryPlan& plan, const LocalShapes& s, std::int64_t tokens, DType data, DType stats) {
  const auto request = [&](const char* name, DType dtype, std::int64_t rows, std::int64_t cols) {
    return plan.request(Segment::activations, name, dtype, {rows, cols});
  };
  residual_1 = request("block residual 1", data, tokens, s.hidden);
  rstd_1 = request("block rstd", stats, tokens, 1);
  out_1 = request("block norm 1", data, tokens, s.hidden);
  qkv = request("block qkv", data, tokens, s.qkv_cols());
  attention = request("block attention", data, tokens, s.heads * s.head_dim);
  lse = request("block lse", stats, s.heads, tokens);
  residual_2 = request("block residual 2", data, tokens, s.hidden);
  rstd_2 = request("block rstd", stats, tokens, 1);
  out_2 = request("block norm 2", data, tokens, s.hidden);
  gate_up = request("block gate_up", data, tokens, 2 * s.ffn);
  activated = request("block activated", data, tokens, s.ffn);
}

BlockSaved BlockSlots::bind(const Arena& arena, std::int64_t tokens) const {
  const auto rows = [&](Slot slot) { return arena[slot].rows_at(0, tokens); };
  const Tensor whole_lse = arena[lse];
  const std::int64_t heads = whole_lse.rows();
  return {{rows(residual_1), rows(rstd_1).flat(), rows(out_1)},
          {rows(qkv), rows(attention), whole_lse.flat(0, heads * tokens).reshaped({heads, tokens})},
          {rows(residual_2), rows(rstd_2).flat(), rows(out_2)},
          {rows(gate_up), rows(activated)}};
}

void Block::forward(Context& ctx, const BlockSaved& saved, Tensor x, Tensor delta, Tensor delta_out, const Batch& batch,
                    const BlockParams<Tensor>& weights, Tensor rope) const {
  norm_.forward(ctx, saved.norm_1, x, delta, weights.norm_1);
  attention_.forward(ctx, delta_out, saved.attention, saved.norm_1.out, batch, weights.qkv, weights.o, rope);
  norm_.forward(ctx, saved.norm_2, saved.norm_1.residual, delta_out, weights.norm_2);
  mlp_.forward(ctx, delta_out, saved.mlp, saved.norm_2.out, weights.gate_up, weights.down);
}

void Block::backward(Context& ctx, Tensor gradient, const BlockSaved& saved, const Batch& batch,
                     const BlockParams<Tensor>& weights, const BlockParams<Gradient>& gradients, Tensor rope) const {
  ScratchStack::Frame frame(ctx.scratch, "block backward");
  const Tensor d_out = frame.take(gradient.dtype, {gradient.rows(), gradient.cols()});
  mlp_.backward(ctx, d_out, gradients.gate_up, gradients.down, gradient, saved.mlp, saved.norm_2.out, weights.gate_up,
                weights.down);
  norm_.backward(ctx, gradient, gradients.norm_2, d_out, saved.norm_2, weights.norm_2);
  attention_.backward(ctx, d_out, gradients.qkv, gradients.o, gradient, saved.attention, saved.norm_1.out, batch,
                      weights.qkv, weights.o, rope);
  norm_.backward(ctx, gradient, gradients.norm_1, d_out, saved.norm_1, weights.norm_1);
}

}  // namespace llmtrain
