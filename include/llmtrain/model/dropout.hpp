// SPDX-License-Identifier: Apache-2.0
/// Dropout on the embedding and at the end of the two residual branches, with the branch's bias in front of it.
#pragma once

#include "llmtrain/model/batch.hpp"
#include "llmtrain/parallel/context.hpp"

namespace llmtrain {

/// The number of each dropout in the model: part of its random key.
inline std::int64_t embedding_dropout() { return 0; }
inline std::int64_t attention_dropout(std::int64_t layer) { return 1 + 2 * layer; }
inline std::int64_t mlp_dropout(std::int64_t layer) { return 2 + 2 * layer; }

class Dropout {
 public:
  Dropout(double probability, std::uint64_t seed) : probability_(probability), seed_(seed) {}

  /// Not in evaluation: such batches have no sample numbers.
  bool drops(const Batch& batch) const { return probability_ > 0 && batch.samples; }

  /// Where drops(): x [rows of the stream, hidden] = dropout(x + bias) in place; the bias may be absent. Elsewhere nothing.
  void forward(Context& ctx, Tensor x, Tensor bias, const Batch& batch, std::int64_t operation) const {
    if (!drops(batch)) return;
    ctx.kernels.bias_dropout(ctx.stream, x, x, bias, batch.samples, key(ctx, batch, operation));
  }
  /// Where drops(): d_x = the gradient of x + bias; d_x may alias d_out. Elsewhere that gradient is d_out itself.
  void backward(Context& ctx, Tensor d_x, Tensor d_out, const Batch& batch, std::int64_t operation) const {
    ctx.kernels.dropout_backward(ctx.stream, d_x, d_out, batch.samples, key(ctx, batch, operation));
  }

 private:
  DropoutKey key(const Context& ctx, const Batch& batch, std::int64_t operation) const {
    return {probability_, seed_, operation, batch.sequence, ctx.tensor.first_row(batch.count())};
  }
  double probability_;
  std::uint64_t seed_;
};

}  // namespace llmtrain
