// SPDX-License-Identifier: Apache-2.0
/// With sequence parallelism, shifts by every distance in turn; all-reduce without.
#include "llmtrain/parallel/token_layout.hpp"

namespace llmtrain {

AllTokens gather_tokens(Context& ctx, ScratchStack::Frame& frame, Tensor part) {
  const TensorGroup& group = ctx.tensor;
  if (!group.sequence) return {part, {}, {{part}}};
  AllTokens all{frame.take(part.dtype, {part.rows() * group.size, part.cols()}), {}, {}};
  const auto rows_of = [&](int rank) { return rank * part.rows(); };
  const auto place_of = [&](int rank) { return all.tensor.rows_at(rows_of(rank), part.rows()); };
  all.parts.push_back({part, rows_of(group.rank)});
  Communicator::Batch batch(*group.communicator, ctx.stream.record());
  for (int distance = 1; distance < group.size; ++distance) {
    const int from = group.communicator->group().at_distance(-distance);
    batch.shift(place_of(from), part, distance);
    if (distance + 1 == group.size) batch.copy(place_of(group.rank), part);
    all.arrival = batch.submit();
    all.parts.push_back({place_of(from), rows_of(from), all.arrival});
  }
  return all;
}

Tensor partial_sums(Context& ctx, ScratchStack::Frame& frame, Tensor part, std::int64_t tokens) {
  return ctx.tensor.sequence ? frame.take(part.dtype, {tokens, part.cols()}) : part;
}

Event sum_partials(Context& ctx, Tensor part, Tensor partial) {
  if (ctx.tensor.size == 1) return {};
  Communicator::Batch batch(*ctx.tensor.communicator, ctx.stream.record());
  if (ctx.tensor.sequence) {
    batch.reduce_scatter(part, partial);
  } else {
    batch.all_reduce(part);
  }
  return batch.submit();
}

TokenSums::TokenSums(Context& ctx, ScratchStack::Frame& frame, Tensor sum, std::int64_t tokens) : ctx_(ctx), sum_(sum) {
  const TensorGroup& group = ctx.tensor;
  if (!group.sequence) {
    parts_.push_back({sum});
    return;
  }
  const std::int64_t rows = group.rows(tokens);
  const auto take = [&] { return frame.take(sum.dtype, {rows, sum.cols()}); };
  for (int rank = 0; rank < group.size; ++rank) terms_.push_back(take());
  for (int distance = 1; distance < group.size; ++distance) {
    parts_.push_back({take(), group.communicator->group().at_distance(distance) * rows});
  }
  parts_.push_back({terms_[static_cast<std::size_t>(group.rank)], group.rank * rows});
}

void TokenSums::send(std::size_t part) {
  if (!ctx_.tensor.sequence) {
    arrival_ = sum_partials(ctx_, sum_, sum_);
    return;
  }
  const auto distance = static_cast<int>(part) + 1;
  if (distance == ctx_.tensor.size) return;  // its own
  Communicator& communicator = *ctx_.tensor.communicator;
  Communicator::Batch batch(communicator, ctx_.stream.record());
  const auto from = static_cast<std::size_t>(communicator.group().at_distance(-distance));
  batch.shift(terms_[from], parts_[part].tensor, distance);
  arrival_ = batch.submit();
}

void TokenSums::finish() {
  ctx_.stream.wait(arrival_);
  if (!terms_.empty()) ctx_.kernels.sum_parts(ctx_.stream, sum_, terms_);
}

}  // namespace llmtrain
