// SPDX-License-Identifier: Apache-2.0
/// The block reads as its formula; what it keeps is requested here and nowhere else.
#include "llmtrain/model/block.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace llmtrain {

Keep::Keep(const ScheduleConfig& schedule, LinearProducts products) : fp8(products == LinearProducts::fp8) {
  const bool block = schedule.recompute == Recompute::block;
  const auto keeps = [&](const char* module) {
    const std::vector<std::string>& names = schedule.recompute_modules;
    const bool named = std::find(names.begin(), names.end(), module) != names.end();
    return !block && (schedule.recompute == Recompute::none || !named);
  };
  stream = !block;
  qkv = !block;
  norm_out = keeps("norm");
  attention = keeps("attention");
  up = keeps("mlp");
  activated = keeps("mlp") && keeps("activation");
}

BlockSlots::BlockSlots(MemoryPlan& plan, const LocalShapes& s, std::int64_t tokens, DType data, DType stats,
                       const Keep& keep) {
  const auto request = [&](bool kept, const std::string& name, DType dtype, std::int64_t rows, std::int64_t cols) {
    return kept ? plan.request(Segment::activations, name, dtype, {rows, cols}) : Slot{};
  };
  const auto request_factor = [&](bool kept, bool as_copy, const std::string& name, std::int64_t rows,
                                  std::int64_t cols) -> FactorSlots {
    if (!as_copy) return {request(kept, name, data, rows, cols), {}, {}};
    return {{},
            request(kept, name + " fp8", DType::fp8_e4m3, cols, rows),
            request(kept, name + " scale", DType::fp32, 1, 1)};
  };
  const std::int64_t stream = s.stream_rows(tokens);
  const auto norm = [&](Slot& residual, Slot& rstd, FactorSlots& out, Slot& mean, int number) {
    residual = request(number == 1 ? keep.input : keep.stream, fmt::format("block residual {}", number), data, stream,
                       s.hidden);
    rstd = request(keep.stream, "block rstd", stats, stream, 1);
    // The MLP's first product, repeated in backward, reads rows.
    const bool as_copy = keep.fp8 && s.token_parts == 1 && (number == 1 || keep.up);
    out = request_factor(keep.norm_out, as_copy, fmt::format("block norm {}", number), stream, s.hidden);
    mean = request(keep.stream && s.layer_norm, "block mean", stats, stream, 1);
  };
  norm(residual_1, rstd_1, out_1, mean_1, 1);
  qkv = request(keep.qkv, "block qkv", data, tokens, s.qkv_cols());
  attention = request(keep.attention, "block attention", data, tokens, s.heads * s.head_dim);
  lse = request(keep.attention, "block lse", stats, s.heads, tokens);
  qk = request(keep.qkv && s.qk_norm, "block qk", data, tokens, s.qk_cols());
  qk_rstd = request(keep.qkv && s.qk_norm, "block qk rstd", stats, tokens, s.heads + s.kv_heads);
  norm(residual_2, rstd_2, out_2, mean_2, 2);
  up = request(keep.up, "block up", data, tokens, s.up_cols());
  activated = request_factor(keep.activated, keep.fp8, "block activated", tokens, s.ffn);
}

BlockSaved BlockSlots::bind(const Arena& arena, std::int64_t tokens, std::int64_t rows) const {
  const auto first = [&](Slot slot, std::int64_t count) { return slot ? arena[slot].rows_at(0, count) : Tensor{}; };
  const auto of_all = [&](Slot slot) { return first(slot, tokens); };
  const auto of_stream = [&](Slot slot) { return first(slot, rows); };
  const auto flat = [](Tensor tensor) { return tensor ? tensor.flat() : Tensor{}; };
  const auto by_head = [&](Slot slot) {
    if (!slot) return Tensor{};
    const std::int64_t heads = arena[slot].rows();
    return arena[slot].flat(0, heads * tokens).reshaped({heads, tokens});
  };
  const auto factor = [&](const FactorSlots& slots, std::int64_t count) {
    if (!slots.fp8_transposed) return Factor(first(slots.matrix, count));
    const Tensor copy = arena[slots.fp8_transposed];
    return Factor({}, {}, copy.flat(0, copy.rows() * count).reshaped({copy.rows(), count}), arena[slots.scale].flat());
  };
  return {{of_stream(residual_1), flat(of_stream(rstd_1)), factor(out_1, rows), flat(of_stream(mean_1))},
          {of_all(qkv), of_all(attention), by_head(lse), of_all(qk), flat(of_all(qk_rstd))},
          {of_stream(residual_2), flat(of_stream(rstd_2)), factor(out_2, rows), flat(of_stream(mean_2))},
          {of_all(up), factor(activated, tokens)}};
}

namespace {

/// Takes scratch memory for a tensor that the model has and does not keep.
void take_if_absent(ScratchStack::Frame& frame, Tensor& tensor, DType dtype,
                    std::initializer_list<std::int64_t> shape) {
  if (!tensor) tensor = frame.take(dtype, shape);
}

}  // namespace

void Block::complete_factor(ScratchStack::Frame& frame, Factor& factor, DType dtype, std::int64_t rows,
                            std::int64_t cols, Pass pass) const {
  if (pass == Pass::forward || !factor.fp8_transposed) take_if_absent(frame, factor.matrix, dtype, {rows, cols});
}

void Block::complete_attention(ScratchStack::Frame& frame, BlockSaved& saved, std::int64_t tokens, Pass pass) const {
  const LocalShapes& s = shapes_;
  const DType data = saved.norm_1.residual.dtype;
  const std::int64_t rows = s.stream_rows(tokens);
  take_if_absent(frame, saved.norm_1.rstd, stats_, {rows});
  complete_factor(frame, saved.norm_1.out, data, rows, s.hidden, pass);
  if (s.layer_norm) take_if_absent(frame, saved.norm_1.mean, stats_, {rows});
  take_if_absent(frame, saved.attention.qkv, data, {tokens, s.qkv_cols()});
  take_if_absent(frame, saved.attention.out, data, {tokens, s.heads * s.head_dim});
  take_if_absent(frame, saved.attention.lse, stats_, {s.heads, tokens});
  if (!s.qk_norm) return;
  take_if_absent(frame, saved.attention.qk, data, {tokens, s.qk_cols()});
  take_if_absent(frame, saved.attention.qk_rstd, stats_, {tokens * (s.heads + s.kv_heads)});
}

void Block::complete_mlp(ScratchStack::Frame& frame, BlockSaved& saved, std::int64_t tokens, Pass pass) const {
  const DType data = saved.norm_1.residual.dtype;
  const std::int64_t rows = shapes_.stream_rows(tokens);
  take_if_absent(frame, saved.norm_2.residual, data, {rows, shapes_.hidden});
  take_if_absent(frame, saved.norm_2.rstd, stats_, {rows});
  complete_factor(frame, saved.norm_2.out, data, rows, shapes_.hidden, pass);
  if (shapes_.layer_norm) take_if_absent(frame, saved.norm_2.mean, stats_, {rows});
  take_if_absent(frame, saved.mlp.up, data, {tokens, shapes_.up_cols()});
  complete_factor(frame, saved.mlp.activated, data, tokens, shapes_.ffn, pass);
}

void Block::forward(Context& ctx, const BlockSaved& kept, Tensor x, Tensor delta, Tensor delta_out, const Batch& batch,
                    const BlockParams<Tensor>& weights, Tensor rope, std::int64_t layer) const {
  LLMTRAIN_CHECK(kept.norm_1.residual && kept.norm_2.residual);
  ScratchStack::Frame frame(ctx.scratch, "block forward");
  BlockSaved saved = kept;
  complete_attention(frame, saved, batch.count(), Pass::forward);
  complete_mlp(frame, saved, batch.count(), Pass::forward);
  const BlockParams<Tensor> products = of_products(weights, batch);
  norm_.forward(ctx, saved.norm_1, x, delta, weights.norm_1);
  attention_.forward(ctx, delta_out, saved.attention, saved.norm_1.out, batch, products.attention, rope);
  dropout_.forward(ctx, delta_out, weights.attention.o.bias, batch, attention_dropout(layer));
  norm_.forward(ctx, saved.norm_2, saved.norm_1.residual, delta_out, weights.norm_2);
  mlp_.forward(ctx, delta_out, saved.mlp, saved.norm_2.out, products.mlp);
  dropout_.forward(ctx, delta_out, weights.mlp.down.bias, batch, mlp_dropout(layer));
}

BlockParams<Tensor> Block::of_products(const BlockParams<Tensor>& weights, const Batch& batch) const {
  BlockParams<Tensor> products = weights;
  if (dropout_.drops(batch)) products.attention.o.bias = products.mlp.down.bias = {};
  return products;
}

void Block::repeat_attention(Context& ctx, const BlockSaved& saved, const BlockSaved& kept, const Batch& batch,
                             const BlockParams<Tensor>& weights, Tensor rope) const {
  if (!kept.norm_1.out) norm_.forward(ctx, saved.norm_1, saved.norm_1.residual, {}, weights.norm_1);
  if (!kept.attention.qkv) {
    attention_.project(ctx, saved.attention, saved.norm_1.out, batch, weights.attention, rope);
  }
  if (!kept.attention.out) attention_.attend(ctx, saved.attention, batch);
}

void Block::repeat_mlp(Context& ctx, const BlockSaved& saved, const BlockSaved& kept, const Batch& batch,
                       const BlockParams<Tensor>& weights, Tensor sum, std::int64_t layer) const {
  if (!kept.norm_2.residual) {
    attention_.finish(ctx, sum, saved.attention, of_products(weights, batch).attention);
    dropout_.forward(ctx, sum, weights.attention.o.bias, batch, attention_dropout(layer));
    norm_.forward(ctx, saved.norm_2, saved.norm_1.residual, sum, weights.norm_2);
  } else if (!kept.norm_2.out) {
    norm_.forward(ctx, saved.norm_2, saved.norm_2.residual, {}, weights.norm_2);
  }
  if (!kept.mlp.up) {
    mlp_.expand(ctx, saved.mlp, saved.norm_2.out, weights.mlp);
  } else if (!kept.mlp.activated) {
    mlp_.activate(ctx, saved.mlp);
  }
}

Tensor Block::branch_gradient(Context& ctx, ScratchStack::Frame& frame, Tensor gradient, const Batch& batch,
                              std::int64_t operation) const {
  if (!dropout_.drops(batch)) return gradient;
  const Tensor d_branch = frame.take(gradient.dtype, {gradient.rows(), gradient.cols()});
  dropout_.backward(ctx, d_branch, gradient, batch, operation);
  return d_branch;
}

void Block::backward(Context& ctx, Tensor gradient, const BlockSaved& kept, const Batch& batch,
                     const BlockParams<Tensor>& weights, const BlockParams<Gradient>& gradients, Tensor rope,
                     std::int64_t layer) const {
  ScratchStack::Frame frame(ctx.scratch, "block backward");
  const Tensor d_out = frame.take(gradient.dtype, {gradient.rows(), gradient.cols()});
  BlockSaved saved = kept;
  const auto attention_again = [&] {
    complete_attention(frame, saved, batch.count(), Pass::backward);
    repeat_attention(ctx, saved, kept, batch, weights, rope);
  };
  // Attention's activations are needed after the MLP's backward; before it only where the MLP's come from them.
  const bool from_input = !kept.norm_2.residual;
  if (from_input) attention_again();
  {
    ScratchStack::Frame branch(ctx.scratch, "mlp branch");
    complete_mlp(branch, saved, batch.count(), Pass::backward);
    repeat_mlp(ctx, saved, kept, batch, weights, d_out, layer);
    mlp_.backward(ctx, d_out, gradients.mlp, branch_gradient(ctx, branch, gradient, batch, mlp_dropout(layer)),
                  saved.mlp, saved.norm_2.out, weights.mlp);
    norm_.backward(ctx, gradient, gradients.norm_2, d_out, saved.norm_2, weights.norm_2);
  }
  if (!from_input) attention_again();
  {
    ScratchStack::Frame branch(ctx.scratch, "attention branch");
    attention_.backward(ctx, d_out, gradients.attention,
                        branch_gradient(ctx, branch, gradient, batch, attention_dropout(layer)), saved.attention,
                        saved.norm_1.out, batch, weights.attention, rope);
  }
  norm_.backward(ctx, gradient, gradients.norm_1, d_out, saved.norm_1, weights.norm_1);
}

}  // namespace llmtrain
