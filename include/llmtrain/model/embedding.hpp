// SPDX-License-Identifier: Apache-2.0
/// Embedding of tokens, over this rank's vocabulary rows, and of positions where they are learned.
#pragma once

#include "llmtrain/model/dropout.hpp"
#include "llmtrain/model/param_table.hpp"
#include "llmtrain/model/shapes.hpp"
#include "llmtrain/parallel/token_layout.hpp"

namespace llmtrain {

class Embedding {
 public:
  Embedding(const LocalShapes& shapes, Dropout dropout) : shapes_(shapes), dropout_(dropout) {}

  /// out [rows of the stream, hidden] = dropout(rows of the token table + rows of the position table).
  void forward(Context& ctx, Tensor out, const Batch& batch, const EmbeddingParams<Tensor>& weights) const {
    {
      ScratchStack::Frame frame(ctx.scratch, "embedding");
      const Tensor own = partial_sums(ctx, frame, out, batch.count());  // rows of other ranks' tokens are 0
      ctx.kernels.embedding_forward(ctx.stream, own, batch.tokens, weights.tokens, shapes_.vocab_range);
      ctx.stream.wait(sum_partials(ctx, out, own));
    }
    if (weights.positions) {
      ctx.kernels.embedding_forward(ctx.stream, out, positions(ctx, batch), weights.positions,
                                    {0, weights.positions.rows()}, Write::accumulate);
    }
    dropout_.forward(ctx, out, {}, batch, embedding_dropout());
  }
  /// `gradient` of out; spent.
  void backward(Context& ctx, const EmbeddingParams<Gradient>& d, Tensor gradient, const Batch& batch) const {
    if (dropout_.drops(batch)) dropout_.backward(ctx, gradient, gradient, batch, embedding_dropout());
    ScratchStack::Frame frame(ctx.scratch, "embedding backward");
    const AllTokens all = gather_tokens(ctx, frame, gradient);
    if (d.positions.tensor) {
      ctx.kernels.embedding_backward(ctx.stream, d.positions.tensor, gradient, positions(ctx, batch), {},
                                     {0, d.positions.tensor.rows()}, d.positions.write);
    }
    ctx.stream.wait(all.arrival);
    ctx.kernels.embedding_backward(ctx.stream, d.tokens.tensor, all.tensor, batch.tokens, batch.order,
                                   shapes_.vocab_range, d.tokens.write);
  }

 private:
  /// Positions of this rank's part of the stream.
  static Tensor positions(const Context& ctx, const Batch& batch) {
    return batch.positions.rows_at(ctx.tensor.first_row(batch.count()), ctx.tensor.rows(batch.count()));
  }

  const LocalShapes& shapes_;
  Dropout dropout_;
};

}  // namespace llmtrain
