// SPDX-License-Identifier: Apache-2.0
/// The block reads as its formula; what it keeps is requested here and nowhere else.
#include "llmtrain/model/block.hpp"

#include <fmt/format.h>

namespace llmtrain {

BlockSlots::BlockSlots(MemoryPlan& plan, const LocalShapes& s, std::int64_t tokens, DType data, DType stats) {
  const auto request = [&](const std::string& name, DType dtype, std::int64_t rows, std::int64_t cols) {
    return plan.request(Segment::activations, name, dtype, {rows, cols});
  };
  const auto norm = [&](Slot& residual, Slot& rstd, Slot& out, Slot& mean, int number) {
    residual = request(fmt::format("block residual {}", number), data, tokens, s.hidden);
    rstd = request("block rstd", stats, tokens, 1);
    out = request(fmt::format("block norm {}", number), data, tokens, s.hidden);
    if (s.layer_norm) mean = request("block mean", stats, tokens, 1);
  };
  norm(residual_1, rstd_1, out_1, mean_1, 1);
  qkv = request("block qkv", data, tokens, s.qkv_cols());
  attention = request("block attention", data, tokens, s.heads * s.head_dim);
  lse = request("block lse", stats, s.heads, tokens);
  if (s.qk_norm) {
    qk = request("block qk", data, tokens, (s.heads + s.kv_heads) * s.head_dim);
    qk_rstd = request("block qk rstd", stats, tokens, s.heads + s.kv_heads);
  }
  norm(residual_2, rstd_2, out_2, mean_2, 2);
  up = request("block up", data, tokens, s.up_cols());
  activated = request("block activated", data, tokens, s.ffn);
}

BlockSaved BlockSlots::bind(const Arena& arena, std::int64_t tokens) const {
  const auto rows = [&](Slot slot) { return slot ? arena[slot].rows_at(0, tokens) : Tensor{}; };
  const auto flat = [&](Slot slot) { return slot ? rows(slot).flat() : Tensor{}; };
  const Tensor whole_lse = arena[lse];
  const std::int64_t heads = whole_lse.rows();
  return {{rows(residual_1), flat(rstd_1), rows(out_1), flat(mean_1)},
          {rows(qkv), rows(attention), whole_lse.flat(0, heads * tokens).reshaped({heads, tokens}), rows(qk),
           flat(qk_rstd)},
          {rows(residual_2), flat(rstd_2), rows(out_2), flat(mean_2)},
          {rows(up), rows(activated)}};
}

void Block::forward(Context& ctx, const BlockSaved& saved, Tensor x, Tensor delta, Tensor delta_out, const Batch& batch,
                    const BlockParams<Tensor>& weights, Tensor rope, std::int64_t layer) const {
  norm_.forward(ctx, saved.norm_1, x, delta, weights.norm_1);
  attention_.forward(ctx, delta_out, saved.attention, saved.norm_1.out, batch, weights.attention, rope);
  dropout_.forward(ctx, delta_out, weights.attention.o.bias, batch, attention_dropout(layer));
  norm_.forward(ctx, saved.norm_2, saved.norm_1.residual, delta_out, weights.norm_2);
  mlp_.forward(ctx, delta_out, saved.mlp, saved.norm_2.out, weights.mlp);
  dropout_.forward(ctx, delta_out, weights.mlp.down.bias, batch, mlp_dropout(layer));
}

Tensor Block::branch_gradient(Context& ctx, ScratchStack::Frame& frame, Tensor gradient, const Batch& batch,
                              std::int64_t operation) const {
  if (!dropout_.drops(batch)) return gradient;
  const Tensor d_branch = frame.take(gradient.dtype, {gradient.rows(), gradient.cols()});
  dropout_.backward(ctx, d_branch, gradient, batch, operation);
  return d_branch;
}

void Block::backward(Context& ctx, Tensor gradient, const BlockSaved& saved, const Batch& batch,
                     const BlockParams<Tensor>& weights, const BlockParams<Gradient>& gradients, Tensor rope,
                     std::int64_t layer) const {
  ScratchStack::Frame frame(ctx.scratch, "block backward");
  const Tensor d_out = frame.take(gradient.dtype, {gradient.rows(), gradient.cols()});
  {
    ScratchStack::Frame branch(ctx.scratch, "mlp branch");
    mlp_.backward(ctx, d_out, gradients.mlp, branch_gradient(ctx, branch, gradient, batch, mlp_dropout(layer)),
                  saved.mlp, saved.norm_2.out, weights.mlp);
  }
  norm_.backward(ctx, gradient, gradients.norm_2, d_out, saved.norm_2, weights.norm_2);
  {
    ScratchStack::Frame branch(ctx.scratch, "attention branch");
    attention_.backward(ctx, d_out, gradients.attention,
                        branch_gradient(ctx, branch, gradient, batch, attention_dropout(layer)), saved.attention,
                        saved.norm_1.out, batch, weights.attention, rope);
  }
  norm_.backward(ctx, gradient, gradients.norm_1, d_out, saved.norm_1, weights.norm_1);
}

}  // namespace llmtrain
