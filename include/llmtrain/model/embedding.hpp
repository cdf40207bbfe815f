// SPDX-License-Identifier: Apache-2.0
/// Token embedding over this rank's vocabulary rows.
#pragma once

#include "llmtrain/model/batch.hpp"
#include "llmtrain/model/shapes.hpp"
#include "llmtrain/parallel/context.hpp"

namespace llmtrain {

class Embedding {
 public:
  explicit Embedding(const LocalShapes& shapes) : shapes_(shapes) {}

  /// out [tokens, hidden] = rows of table [vocab, hidden].
  void forward(Context& ctx, Tensor out, const Batch& batch, Tensor table) const {
    ctx.kernels.embedding_forward(ctx.stream, out, batch.tokens, table, shapes_.vocab_range);
  }
  void backward(Context& ctx, Gradient d_table, Tensor d_out, const Batch& batch) const {
    ctx.kernels.embedding_backward(ctx.stream, d_table.tensor, d_out, batch.tokens, batch.order, shapes_.vocab_range,
                                   d_table.write);
  }

 private:
  const LocalShapes& shapes_;
};

}  // namespace llmtrain
