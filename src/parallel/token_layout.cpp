// SPDX-License-Identifier: Apache-2.0
/// All-gather and reduce-scatter with sequence parallelism, all-reduce without.
#include "llmtrain/parallel/token_layout.hpp"

namespace llmtrain {

AllTokens gather_tokens(Context& ctx, ScratchStack::Frame& frame, Tensor part) {
  if (!ctx.tensor.sequence) return {part, {}};
  const Tensor whole = frame.take(part.dtype, {part.rows() * ctx.tensor.size, part.cols()});
  Communicator::Batch batch(*ctx.tensor.communicator, ctx.stream.record());
  batch.all_gather(whole, part);
  return {whole, batch.submit()};
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

}  // namespace llmtrain
