// SPDX-License-Identifier: Apache-2.0
/// Chunked head: logits, loss, gradient of the logits in place, then both of its uses.
#include "llmtrain/model/lm_head.hpp"

#include <algorithm>

#include "llmtrain/parallel/token_layout.hpp"

namespace llmtrain {

namespace {

/// Elements of one chunk of logits: large enough for efficient GEMMs, and on a GPU for few passes over the gradient of the
/// projection (8192 tokens of Llama-3's or Qwen2's vocabulary); small beside the activations.
constexpr std::int64_t chunk_elements(DeviceKind kind) {
  return kind == DeviceKind::cuda ? std::int64_t{5} << 28 : std::int64_t{1} << 25;
}
constexpr std::int64_t chunk_multiple = 128;  // tokens: whole tiles of a GEMM

}  // namespace

/// As few chunks as the limit allows, of nearly equal size.
std::int64_t LmHead::chunk_tokens(DeviceKind kind, std::int64_t tokens) const {
  const std::int64_t most = std::max<std::int64_t>(chunk_elements(kind) / shapes_.vocab, 1);
  const std::int64_t chunks = std::max<std::int64_t>((tokens + most - 1) / most, 1);
  const std::int64_t even = (tokens + chunks - 1) / chunks;
  return std::min(most, (even + chunk_multiple - 1) / chunk_multiple * chunk_multiple);
}

NormSaved LmHead::norm_forward(Context& ctx, ScratchStack::Frame& frame, Tensor residual, Tensor delta,
                               Tensor weight) const {
  // The sum goes into delta: the last block's backward still needs its residual.
  const NormSaved saved{delta ? delta : residual, frame.take(stats_, {residual.rows()}),
                        frame.take(residual.dtype, {residual.rows(), residual.cols()}),
                        norm_.keeps_mean() ? frame.take(stats_, {residual.rows()}) : Tensor{}};
  norm_.forward(ctx, saved, residual, delta, weight);
  return saved;
}

void LmHead::chunk_loss(Context& ctx, Wanted wanted, Tensor logits, Tensor totals, Tensor x, const Batch& batch,
                        std::int64_t begin, Tensor weight) const {
  const std::int64_t count = logits.rows();
  ScratchStack::Frame frame(ctx.scratch, "statistics of a chunk");
  const Tensor stats = frame.take(stats_, {3, count});
  const Tensor targets = batch.targets.rows_at(begin, count), weights = batch.weights.rows_at(begin, count);
  const VocabRange vocab = shapes_.vocab_range;
  projection_.multiply(ctx, logits, x.rows_at(begin, count), weight);
  const bool whole = ctx.tensor.size == 1;  // the vocabulary: its statistics need no other rank's
  if (whole && wanted == Wanted::gradient) {
    ctx.kernels.cross_entropy_with_gradient(ctx.stream, stats, logits, targets, weights, vocab);
  } else {
    ctx.kernels.cross_entropy_stats(ctx.stream, stats, logits, targets, vocab);
    if (!whole) merge_over_group(ctx, stats);
    if (wanted == Wanted::gradient) {
      ctx.kernels.cross_entropy_gradient(ctx.stream, logits, stats, targets, weights, vocab);
    }
  }
  // Every tensor rank knows the loss; one counts it.
  if (ctx.tensor.rank == 0) ctx.kernels.cross_entropy_loss(ctx.stream, totals, stats, weights);
}

void LmHead::merge_over_group(Context& ctx, Tensor stats) const {
  ScratchStack::Frame frame(ctx.scratch, "statistics of all ranks");
  const Tensor all = frame.take(stats_, {ctx.tensor.size, 3, stats.cols()});
  Communicator::Batch batch(*ctx.tensor.communicator, ctx.stream.record());
  batch.all_gather(all, stats);
  ctx.stream.wait(batch.submit());
  ctx.kernels.cross_entropy_merge(ctx.stream, stats, all);
}

void LmHead::train(Context& ctx, Tensor gradient, Tensor totals, Tensor residual, Tensor delta, const Batch& batch,
                   const HeadParams<Tensor>& weights, const HeadParams<Gradient>& gradients) const {
  ScratchStack::Frame frame(ctx.scratch, "final norm");
  const NormSaved saved = norm_forward(ctx, frame, residual, delta, weights.norm);
  const AllTokens x = gather_tokens(ctx, frame, saved.out.matrix);
  const Tensor d_out = frame.take(residual.dtype, {residual.rows(), residual.cols()});
  const Tensor d_x = partial_sums(ctx, frame, d_out, batch.count());
  ctx.stream.wait(x.arrival);
  Gradient d_weight = gradients.weight;
  Event summed;
  const std::int64_t chunk_size = chunk_tokens(ctx.stream.device->kind(), batch.count());
  for (std::int64_t begin = 0; begin < batch.count(); begin += chunk_size) {
    const std::int64_t count = std::min(chunk_size, batch.count() - begin);
    ScratchStack::Frame chunk(ctx.scratch, "logits chunk");
    const Tensor logits = chunk.take(residual.dtype, {count, shapes_.vocab});
    chunk_loss(ctx, Wanted::gradient, logits, totals, x.tensor, batch, begin, weights.weight);
    projection_.input_gradient(ctx, d_x.rows_at(begin, count), logits, weights.weight);
    if (begin + count == batch.count()) summed = sum_partials(ctx, d_out, d_x);
    projection_.weight_gradient(ctx, d_weight, logits, x.tensor.rows_at(begin, count));
    d_weight.write = Write::accumulate;
  }
  ctx.stream.wait(summed);
  norm_.backward_last(ctx, gradient, gradients.norm, d_out, saved, weights.norm);
}

void LmHead::evaluate(Context& ctx, Tensor totals, Tensor residual, Tensor delta, const Batch& batch,
                      const HeadParams<Tensor>& weights) const {
  ScratchStack::Frame frame(ctx.scratch, "final norm");
  const NormSaved saved = norm_forward(ctx, frame, residual, delta, weights.norm);
  const AllTokens x = gather_tokens(ctx, frame, saved.out.matrix);
  ctx.stream.wait(x.arrival);
  const std::int64_t chunk_size = chunk_tokens(ctx.stream.device->kind(), batch.count());
  for (std::int64_t begin = 0; begin < batch.count(); begin += chunk_size) {
    const std::int64_t count = std::min(chunk_size, batch.count() - begin);
    ScratchStack::Frame chunk(ctx.scratch, "logits chunk");
    const Tensor logits = chunk.take(residual.dtype, {count, shapes_.vocab});
    chunk_loss(ctx, Wanted::loss, logits, totals, x.tensor, batch, begin, weights.weight);
  }
}

void LmHead::logits(Context& ctx, Tensor logits, Tensor residual, Tensor delta,
                    const HeadParams<Tensor>& weights) const {
  ScratchStack::Frame frame(ctx.scratch, "final norm");
  const NormSaved saved = norm_forward(ctx, frame, residual, delta, weights.norm);
  const AllTokens x = gather_tokens(ctx, frame, saved.out.matrix);
  ctx.stream.wait(x.arrival);
  const std::int64_t first = x.tensor.rows() - logits.rows();
  projection_.multiply(ctx, logits, x.tensor.rows_at(first, logits.rows()), weights.weight);
}

}  // namespace llmtrain
