// SPDX-License-Identifier: Apache-2.0
/// The order of layers and leases.
#include "llmtrain/model/stage.hpp"

namespace llmtrain {

Stage::Stage(const ModelConfig& config, int tensor_rank, int tensor_size, Compute compute, const StageSizes& sizes,
             MemoryPlan& plan, std::uint64_t seed)
    : config_(config),
      shapes_(config, tensor_rank, tensor_size, sizes.sequence),
      data_(data_dtype(compute)),
      stats_(stats_dtype(compute)),
      embedding_(shapes_, {config.dropout, seed}),
      block_(config_, shapes_, stats_, {config.dropout, seed}),
      head_(config_, shapes_, stats_) {
  if (config.positions == Positions::rope) {
    rope_slot_ = plan.request(Segment::params, "rope table", stats_, {config.seq_len, config.head_dim / 2, 2});
  }
  for (int slot = 0; slot < sizes.slots; ++slot) {
    SlotMemory memory;
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      memory.blocks.emplace_back(plan, shapes_, sizes.tokens, data_, stats_, sizes.keep);
    }
    memory.gradient = plan.request(Segment::activations, "stream gradient", data_,
                                   {shapes_.stream_rows(sizes.tokens), shapes_.hidden});
    slots_.push_back(std::move(memory));
  }
}

void Stage::bind(const Arena& arena, Stream stream) {
  arena_ = &arena;
  if (!rope_slot_) return;
  rope_ = arena[rope_slot_];
  const std::vector<double> table = rope_table(config_.rope, config_.seq_len, config_.head_dim);
  if (stats_ == DType::fp64) {
    stream.device->upload(stream, rope_, table.data());
    stream.synchronize();
  } else {
    const std::vector<float> rounded(table.begin(), table.end());
    stream.device->upload(stream, rope_, rounded.data());
    stream.synchronize();
  }
}

BlockSaved Stage::saved(int slot, std::int64_t layer, const Batch& batch) const {
  const BlockSlots& slots = slots_[static_cast<std::size_t>(slot)].blocks[static_cast<std::size_t>(layer)];
  return slots.bind(*arena_, batch.count(), shapes_.stream_rows(batch.count()));
}

Tensor Stage::stream_gradient(int slot, const Batch& batch) const {
  return (*arena_)[slots_[static_cast<std::size_t>(slot)].gradient].rows_at(0, shapes_.stream_rows(batch.count()));
}

Stage::StreamParts Stage::run_blocks(Context& ctx, ScratchStack::Frame& frame, const Batch& batch, int slot,
                                     ParamStore& params) {
  const std::int64_t rows = shapes_.stream_rows(batch.count());
  const Tensor delta = frame.take(data_, {rows, shapes_.hidden});
  BlockSaved current = saved(slot, 0, batch);
  // Where blocks do not keep their second residual, it only has to reach the next block.
  const Tensor passing = current.norm_2.residual ? Tensor{} : frame.take(data_, {rows, shapes_.hidden});
  embedding_.forward(ctx, current.norm_1.residual, batch,
                     EmbeddingParams<Tensor>(params.acquire(embedding_lease(), ctx.stream), config_));
  params.release(embedding_lease(), ctx.stream);
  Tensor x = current.norm_1.residual;
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    const int lease = block_lease(layer);
    const BlockParams<Tensor> weights(params.acquire(lease, ctx.stream), config_);
    current = saved(slot, layer, batch);
    if (passing) current.norm_2.residual = passing;
    block_.forward(ctx, current, x, layer == 0 ? Tensor{} : delta, delta, batch, weights, rope_, layer);
    params.release(lease, ctx.stream);
    x = current.norm_2.residual;
  }
  return {x, delta};
}

void Stage::forward(Context& ctx, const Batch& batch, int slot, ParamStore& params, GradStore& grads, Tensor totals) {
  ScratchStack::Frame frame(ctx.scratch, "stream");
  const auto [residual, delta] = run_blocks(ctx, frame, batch, slot, params);
  const int lease = head_lease(config_.layers);
  const HeadParams<Tensor> weights(params.acquire(lease, ctx.stream));
  const HeadParams<Gradient> gradients(grads.open(lease));
  const Tensor gradient = stream_gradient(slot, batch);
  head_.train(ctx, gradient, totals, residual, delta, batch, weights, gradients);
  params.release(lease, ctx.stream);
  grads.commit(lease, ctx.stream);
}

void Stage::backward(Context& ctx, const Batch& batch, int slot, ParamStore& params, GradStore& grads) {
  const Tensor gradient = stream_gradient(slot, batch);
  for (std::int64_t layer = config_.layers - 1; layer >= 0; --layer) {
    const int lease = block_lease(layer);
    const BlockParams<Tensor> weights(params.acquire(lease, ctx.stream), config_);
    const BlockParams<Gradient> gradients(grads.open(lease), config_);
    block_.backward(ctx, gradient, saved(slot, layer, batch), batch, weights, gradients, rope_, layer);
    params.release(lease, ctx.stream);
    grads.commit(lease, ctx.stream);
  }
  embedding_.backward(ctx, EmbeddingParams<Gradient>(grads.open(embedding_lease()), config_), gradient, batch);
  grads.commit(embedding_lease(), ctx.stream);
}

void Stage::evaluate(Context& ctx, const Batch& trained, ParamStore& params, Tensor totals) {
  Batch batch = trained;
  batch.samples = {};  // no dropout
  ScratchStack::Frame frame(ctx.scratch, "stream");
  const auto [residual, delta] = run_blocks(ctx, frame, batch, 0, params);
  const int lease = head_lease(config_.layers);
  head_.evaluate(ctx, totals, residual, delta, batch, HeadParams<Tensor>(params.acquire(lease, ctx.stream)));
  params.release(lease, ctx.stream);
}

void Stage::logits(Context& ctx, const Batch& batch, ParamStore& params, Tensor logits) {
  ScratchStack::Frame frame(ctx.scratch, "stream");
  const auto [residual, delta] = run_blocks(ctx, frame, batch, 0, params);
  const int lease = head_lease(config_.layers);
  head_.logits(ctx, logits, residual, delta, HeadParams<Tensor>(params.acquire(lease, ctx.stream)));
  params.release(lease, ctx.stream);
}

}  // namespace llmtrain
