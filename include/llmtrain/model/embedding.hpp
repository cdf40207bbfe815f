// SPDX-License-Identifier: Apache-2.0
/// Embedding of tokens, over this rank's vocabulary rows, and of positions where they are learned.
#pragma once

#include "llmtrain/model/dropout.hpp"
#include "llmtrain/model/param_table.hpp"
#include "llmtrain/model/shapes.hpp"

namespace llmtrain {

class Embedding {
 public:
  Embedding(const LocalShapes& shapes, Dropout dropout) : shapes_(shapes), dropout_(dropout) {}

  /// out [tokens, hidden] = dropout(rows of the token table + rows of the position table).
  void forward(Context& ctx, Tensor out, const Batch& batch, const EmbeddingParams<Tensor>& weights) const {
    ctx.kernels.embedding_forward(ctx.stream, out, batch.tokens, weights.tokens, shapes_.vocab_range);
    if (weights.positions) {
      ctx.kernels.embedding_forward(ctx.stream, out, batch.positions, weights.positions, {0, weights.positions.rows()},
                                    Write::accumulate);
    }
    dropout_.forward(ctx, out, {}, batch, embedding_dropout());
  }
  /// `gradient` of out; spent.
  void backward(Context& ctx, const EmbeddingParams<Gradient>& d, Tensor gradient, const Batch& batch) const {
    if (dropout_.drops(batch)) dropout_.backward(ctx, gradient, gradient, batch, embedding_dropout());
    ctx.kernels.embedding_backward(ctx.stream, d.tokens.tensor, gradient, batch.tokens, batch.order,
                                   shapes_.vocab_range, d.tokens.write);
    if (d.positions.tensor) {
      ctx.kernels.embedding_backward(ctx.stream, d.positions.tensor, gradient, batch.positions, {},
                                     {0, d.positions.tensor.rows()}, d.positions.write);
    }
  }

 private:
  const LocalShapes& shapes_;
  Dropout dropout_;
};

}  // namespace llmtrain
