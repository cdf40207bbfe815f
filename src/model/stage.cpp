// SPDX-License-Identifier: Apache-2.0
/// The order of layers and leases.
#include "llmtrain/model/stage.hpp"

namespace llmtrain {

Stage::Stage(const ModelConfig& config, const PieceLeases& leases, int tensor_rank, int tensor_size, Compute compute,
             const StageSizes& sizes, const RopeTable& rope, MemoryPlan& plan, std::uint64_t seed)
    : config_(config),
      leases_(leases),
      shapes_(config, tensor_rank, tensor_size, sizes.sequence),
      data_(data_dtype(compute)),
      stats_(stats_dtype(compute)),
      embedding_(shapes_, {config.dropout, seed}),
      block_(config_, shapes_, stats_, {config.dropout, seed}),
      head_(config_, shapes_, stats_),
      keep_(sizes.keep),
      rope_(rope) {
  for (int slot = 0; slot < sizes.slots; ++slot) {
    std::vector<BlockSlots>& blocks = slots_.emplace_back();
    for (std::int64_t i = 0; i < piece_.layers; ++i) {
      Keep keep = sizes.keep;
      keep.input = i > 0;  // the first one's is the stage's
      blocks.emplace_back(plan, shapes_, sizes.tokens, data_, stats_, keep);
    }
  }
}

BlockSaved Stage::saved(int slot, std::int64_t i, const Batch& batch, Tensor input) const {
  const BlockSlots& slots = slots_[static_cast<std::size_t>(slot)][static_cast<std::size_t>(i)];
  BlockSaved saved = slots.bind(*arena_, batch.count(), shapes_.stream_rows(batch.count()));
  if (i == 0) saved.norm_1.residual = input;
  return saved;
}

Stage::StreamParts Stage::run_blocks(Context& ctx, ScratchStack::Frame& frame, const Batch& batch, int slot,
                                     Tensor input, ParamStore& params) {
  if (piece_.embedding) {
    embedding_.forward(ctx, input, batch,
                       EmbeddingParams<Tensor>(params.acquire(leases_.embedding(), ctx.stream), config_));
    params.release(leases_.embedding(), ctx.stream);
  }
  if (piece_.layers == 0) return {input, {}};
  const Tensor delta = frame.take(data_, {input.rows(), shapes_.hidden});
  // Where blocks do not keep their second residual, it only has to reach the next block.
  const Tensor passing = keep_.stream ? Tensor{} : frame.take(data_, {input.rows(), shapes_.hidden});
  Tensor x = input;
  for (std::int64_t i = 0; i < piece_.layers; ++i) {
    const BlockParams<Tensor> weights(params.acquire(leases_.block(i), ctx.stream), config_);
    BlockSaved current = saved(slot, i, batch, input);
    if (passing) current.norm_2.residual = passing;
    block_.forward(ctx, current, x, i == 0 ? Tensor{} : delta, delta, batch, weights, rope_.tensor(),
                   piece_.first_layer + i);
    params.release(leases_.block(i), ctx.stream);
    x = current.norm_2.residual;
  }
  return {x, delta};
}

void Stage::hand_on(Context& ctx, Tensor output, const StreamParts& stream) const {
  if (stream.delta) {
    ctx.kernels.add(ctx.stream, output, stream.residual, stream.delta);
  } else {
    ctx.kernels.copy(ctx.stream, output, stream.residual);
  }
}

void Stage::forward(Context& ctx, const Batch& batch, int slot, const StageEnds& ends, ParamStore& params,
                    GradStore& grads, Tensor totals) {
  ScratchStack::Frame frame(ctx.scratch, "stream");
  const StreamParts stream = run_blocks(ctx, frame, batch, slot, ends.input, params);
  if (!piece_.head) return hand_on(ctx, ends.output, stream);
  const HeadParams<Tensor> weights(params.acquire(leases_.head(), ctx.stream));
  const HeadParams<Gradient> gradients(grads.open(leases_.head()));
  head_.train(ctx, ends.gradient, totals, stream.residual, stream.delta, batch, weights, gradients);
  params.release(leases_.head(), ctx.stream);
  grads.commit(leases_.head(), ctx.stream);
}

void Stage::backward(Context& ctx, const Batch& batch, int slot, const StageEnds& ends, ParamStore& params,
                     GradStore& grads) {
  for (std::int64_t i = piece_.layers - 1; i >= 0; --i) {
    const int lease = leases_.block(i);
    const BlockParams<Tensor> weights(params.acquire(lease, ctx.stream), config_);
    const BlockParams<Gradient> gradients(grads.open(lease), config_);
    block_.backward(ctx, ends.gradient, saved(slot, i, batch, ends.input), batch, weights, gradients, rope_.tensor(),
                    piece_.first_layer + i);
    params.release(lease, ctx.stream);
    grads.commit(lease, ctx.stream);
  }
  if (!piece_.embedding) return;
  embedding_.backward(ctx, EmbeddingParams<Gradient>(grads.open(leases_.embedding()), config_), ends.gradient, batch);
  grads.commit(leases_.embedding(), ctx.stream);
}

void Stage::evaluate(Context& ctx, const Batch& trained, const StageEnds& ends, ParamStore& params, Tensor totals) {
  Batch batch = trained;
  batch.samples = {};  // no dropout
  ScratchStack::Frame frame(ctx.scratch, "stream");
  const StreamParts stream = run_blocks(ctx, frame, batch, 0, ends.input, params);
  if (!piece_.head) return hand_on(ctx, ends.output, stream);
  const HeadParams<Tensor> weights(params.acquire(leases_.head(), ctx.stream));
  head_.evaluate(ctx, totals, stream.residual, stream.delta, batch, weights);
  params.release(leases_.head(), ctx.stream);
}

void Stage::logits(Context& ctx, const Batch& batch, const StageEnds& ends, ParamStore& params, Tensor logits) {
  LLMTRAIN_CHECK(piece_.embedding && piece_.head && piece_.layers > 0);
  ScratchStack::Frame frame(ctx.scratch, "stream");
  const auto [residual, delta] = run_blocks(ctx, frame, batch, 0, ends.input, params);
  head_.logits(ctx, logits, residual, delta, HeadParams<Tensor>(params.acquire(leases_.head(), ctx.stream)));
  params.release(leases_.head(), ctx.stream);
}

}  // namespace llmtrain
