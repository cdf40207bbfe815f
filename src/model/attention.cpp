// SPDX-License-Identifier: Apache-2.0
/// Projections, norms, rotation and the attention kernel, on packed views.
#include "llmtrain/model/attention.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "llmtrain/backend/workspace.hpp"

namespace llmtrain {

Attention::Packed Attention::unpack(Tensor qk, Tensor qkv) const {
  const std::int64_t q = shapes_.heads * shapes_.head_dim;
  const std::int64_t kv = shapes_.kv_heads * shapes_.head_dim;
  return {qk.cols_at(0, q).with_inner({shapes_.heads, shapes_.head_dim}),
          qk.cols_at(q, kv).with_inner({shapes_.kv_heads, shapes_.head_dim}),
          qkv.cols_at(q + kv, kv).with_inner({shapes_.kv_heads, shapes_.head_dim}),
          qk.cols_at(0, q + kv).with_inner({shapes_.heads + shapes_.kv_heads, shapes_.head_dim})};
}

AttentionOptions Attention::options(const Batch& batch) const {
  AttentionOptions options;
  options.shape = {batch.batch, batch.sequence, shapes_.heads, shapes_.kv_heads, shapes_.head_dim};
  options.scale = 1.0 / std::sqrt(static_cast<double>(shapes_.head_dim));
  options.documents = batch.documents;
  return options;
}

void Attention::norm_forward(Context& ctx, const AttentionSaved& saved, Tensor weight) const {
  const std::int64_t n = shapes_.head_dim, q_rows = saved.qk.rows() * shapes_.heads;
  const Packed raw = unpack(saved.qkv, saved.qkv), normed = unpack(saved.qk, saved.qkv);
  ctx.kernels.rms_norm_forward(ctx.stream, normed.q, {}, saved.qk_rstd.flat(0, q_rows), raw.q, {}, weight.flat(0, n),
                               norm_eps_);
  ctx.kernels.rms_norm_forward(ctx.stream, normed.k, {}, saved.qk_rstd.flat(q_rows, saved.qk.rows() * shapes_.kv_heads),
                               raw.k, {}, weight.flat(n, n), norm_eps_);
}

void Attention::norm_backward(Context& ctx, const Packed& d, Gradient d_weight, const AttentionSaved& saved,
                              Tensor weight) const {
  const std::int64_t n = shapes_.head_dim;
  const std::int64_t q_rows = d.q.rows() * shapes_.heads, k_rows = d.k.rows() * shapes_.kv_heads;
  const Packed raw = unpack(saved.qkv, saved.qkv);
  ScratchStack::Frame frame(ctx.scratch, "qk norm backward");
  const Tensor workspace = frame.take(
      DType::uint8, {norm_backward_workspace(ctx.stream.device->kind(), std::max(q_rows, k_rows), n, stats_)});
  ctx.kernels.rms_norm_backward(ctx.stream, d.q, d_weight.tensor.flat(0, n), {}, d.q, raw.q,
                                saved.qk_rstd.flat(0, q_rows), weight.flat(0, n), d_weight.write, workspace);
  ctx.kernels.rms_norm_backward(ctx.stream, d.k, d_weight.tensor.flat(n, n), {}, d.k, raw.k,
                                saved.qk_rstd.flat(q_rows, k_rows), weight.flat(n, n), d_weight.write, workspace);
}

void Attention::forward(Context& ctx, Tensor y, const AttentionSaved& saved, const Factor& x, const Batch& batch,
                        const AttentionParams<Tensor>& weights, Tensor rope) const {
  project(ctx, saved, x, batch, weights, rope);
  attend(ctx, saved, batch);
  finish(ctx, y, saved, weights);
}

void Attention::project(Context& ctx, const AttentionSaved& saved, const Factor& x, const Batch& batch,
                        const AttentionParams<Tensor>& weights, Tensor rope) const {
  qkv_.forward(ctx, saved.qkv, x, weights.qkv.weight, weights.qkv.bias);
  if (weights.qk_norm) norm_forward(ctx, saved, weights.qk_norm);
  const Packed packed = unpack(saved.qk ? saved.qk : saved.qkv, saved.qkv);
  if (rope) ctx.kernels.rope(ctx.stream, packed.q_and_k, rope, batch.positions, Rotation::forward);
}

void Attention::attend(Context& ctx, const AttentionSaved& saved, const Batch& batch) const {
  const Packed packed = unpack(saved.qk ? saved.qk : saved.qkv, saved.qkv);
  ctx.kernels.attention_forward(ctx.stream, saved.out.with_inner({shapes_.heads, shapes_.head_dim}), saved.lse,
                                packed.q, packed.k, packed.v, batch.starts, options(batch));
}

void Attention::finish(Context& ctx, Tensor y, const AttentionSaved& saved,
                       const AttentionParams<Tensor>& weights) const {
  o_.forward(ctx, y, saved.out, weights.o.weight, weights.o.bias);
}

void Attention::backward(Context& ctx, Tensor d_x, const AttentionParams<Gradient>& gradients, Tensor d_y,
                         const AttentionSaved& saved, const Factor& x, const Batch& batch,
                         const AttentionParams<Tensor>& weights, Tensor rope) const {
  ScratchStack::Frame frame(ctx.scratch, "attention backward: qkv gradient");
  const Tensor d_qkv = frame.take(d_y.dtype, {batch.count(), shapes_.qkv_cols()});
  const Packed d = unpack(d_qkv, d_qkv);
  const Packed packed = unpack(weights.qk_norm ? saved.qk : saved.qkv, saved.qkv);
  {
    ScratchStack::Frame inner(ctx.scratch, "attention backward");
    const AttentionOptions call = options(batch);
    const Tensor d_out = inner.take(d_y.dtype, {batch.count(), shapes_.heads * shapes_.head_dim});
    const Tensor workspace = inner.take(
        DType::uint8,
        {attention_backward_workspace(ctx.stream.device->kind(), call.shape, stats_, static_cast<bool>(batch.starts))});
    o_.backward(ctx, d_out, gradients.o, d_y, saved.out, weights.o.weight);
    ctx.kernels.attention_backward(
        ctx.stream, d.q, d.k, d.v, d_out.with_inner({shapes_.heads, shapes_.head_dim}), packed.q, packed.k, packed.v,
        saved.out.with_inner({shapes_.heads, shapes_.head_dim}), saved.lse, batch.starts, call, workspace);
  }
  if (rope) ctx.kernels.rope(ctx.stream, d.q_and_k, rope, batch.positions, Rotation::backward);
  if (weights.qk_norm) norm_backward(ctx, d, gradients.qk_norm, saved, weights.qk_norm);
  qkv_.backward(ctx, d_x, gradients.qkv, d_qkv, x, weights.qkv.weight);
}

std::vector<double> rope_frequencies(const RopeConfig& rope, std::int64_t head_dim) {
  const RopeScaling& s = rope.scaling;
  const double original = static_cast<double>(s.original_max_position);
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    const double f = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    const double turns = original * f / (2 * std::numbers::pi);  // of the original length: original / wavelength
    double scaled = f;
    if (s.factor != 0 && turns < s.high_freq_factor) {
      const double kept = std::max(0.0, (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor));
      scaled = (1 - kept) * (f / s.factor) + kept * f;
    }
    frequencies.push_back(scaled);
  }
  return frequencies;
}

std::vector<double> rope_table(const RopeConfig& rope, std::int64_t positions, std::int64_t head_dim) {
  const std::vector<double> frequencies = rope_frequencies(rope, head_dim);
  std::vector<double> table;
  table.reserve(static_cast<std::size_t>(positions * head_dim));
  for (std::int64_t position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      table.push_back(std::cos(angle));
      table.push_back(std::sin(angle));
    }
  }
  return table;
}

}  // namespace llmtrain
