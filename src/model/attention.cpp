// SPDX-License-Identifier: Apache-2.0
/// Projections, rotation and the attention kernel, on packed views.
#include "llmtrain/model/attention.hpp"

#include <cmath>

#include "llmtrain/backend/workspace.hpp"

namespace llmtrain {

Attention::Packed Attention::unpack(Tensor qkv) const {
  const std::int64_t q = shapes_.heads * shapes_.head_dim;
  const std::int64_t kv = shapes_.kv_heads * shapes_.head_dim;
  return {qkv.cols_at(0, q).with_inner({shapes_.heads, shapes_.head_dim}),
          qkv.cols_at(q, kv).with_inner({shapes_.kv_heads, shapes_.head_dim}),
          qkv.cols_at(q + kv, kv).with_inner({shapes_.kv_heads, shapes_.head_dim}),
          qkv.cols_at(0, q + kv).with_inner({shapes_.heads + shapes_.kv_heads, shapes_.head_dim})};
}

AttentionOptions Attention::options(const Batch& batch) const {
  AttentionOptions options;
  options.shape = {batch.batch, batch.sequence, shapes_.heads, shapes_.kv_heads, shapes_.head_dim};
  options.scale = 1.0 / std::sqrt(static_cast<double>(shapes_.head_dim));
  return options;
}

void Attention::forward(Context& ctx, Tensor y, const AttentionSaved& saved, Tensor x, const Batch& batch,
                        Tensor qkv_weight, Tensor o_weight, Tensor rope) const {
  qkv_.forward(ctx, saved.qkv, x, qkv_weight);
  const Packed packed = unpack(saved.qkv);
  ctx.kernels.rope(ctx.stream, packed.q_and_k, rope, batch.positions, Rotation::forward);
  ctx.kernels.attention_forward(ctx.stream, saved.out.with_inner({shapes_.heads, shapes_.head_dim}), saved.lse,
                                packed.q, packed.k, packed.v, batch.starts, options(batch));
  o_.forward(ctx, y, saved.out, o_weight);
}

void Attention::backward(Context& ctx, Tensor d_x, Gradient d_qkv_weight, Gradient d_o_weight, Tensor d_y,
                         const AttentionSaved& saved, Tensor x, const Batch& batch, Tensor qkv_weight, Tensor o_weight,
                         Tensor rope) const {
  ScratchStack::Frame frame(ctx.scratch, "attention backward: qkv gradient");
  const Tensor d_qkv = frame.take(x.dtype, {batch.count(), shapes_.qkv_cols()});
  const Packed d = unpack(d_qkv);
  const Packed packed = unpack(saved.qkv);
  {
    ScratchStack::Frame inner(ctx.scratch, "attention backward");
    const AttentionOptions call = options(batch);
    const Tensor d_out = inner.take(x.dtype, {batch.count(), shapes_.heads * shapes_.head_dim});
    const Tensor workspace =
        inner.take(DType::uint8, {attention_backward_workspace(ctx.stream.device->kind(), call.shape, stats_)});
    o_.backward(ctx, d_out, d_o_weight, d_y, saved.out, o_weight);
    ctx.kernels.attention_backward(
        ctx.stream, d.q, d.k, d.v, d_out.with_inner({shapes_.heads, shapes_.head_dim}), packed.q, packed.k, packed.v,
        saved.out.with_inner({shapes_.heads, shapes_.head_dim}), saved.lse, batch.starts, call, workspace);
  }
  ctx.kernels.rope(ctx.stream, d.q_and_k, rope, batch.positions, Rotation::backward);
  qkv_.backward(ctx, d_x, d_qkv_weight, d_qkv, x, qkv_weight);
}

std::vector<double> rope_table(const RopeConfig& rope, std::int64_t positions, std::int64_t head_dim) {
  std::vector<double> table;
  table.reserve(static_cast<std::size_t>(positions * head_dim));
  for (std::int64_t position = 0; position < positions; ++position) {
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
      const double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      const double angle = static_cast<double>(position) * frequency;
      table.push_back(std::cos(angle));
      table.push_back(std::sin(angle));
    }
  }
  return table;
}

}  // namespace llmtrain
