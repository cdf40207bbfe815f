// SPDX-License-Identifier: Apache-2.0
/// Final norm, LM head and cross-entropy, in chunks of tokens: full logits never exist, and the head's backward runs
/// inside the forward action, so nothing is recomputed. Each tensor rank has the logits of its vocabulary rows; only three
/// numbers a token and rank are exchanged.
#pragma once

#include "llmtrain/model/batch.hpp"
#include "llmtrain/model/norm.hpp"
#include "llmtrain/model/param_table.hpp"
#include "llmtrain/model/shapes.hpp"
#include "llmtrain/parallel/linear.hpp"

namespace llmtrain {

class LmHead {
 public:
  LmHead(const ModelConfig& config, const LocalShapes& shapes, DType stats)
      : shapes_(shapes), stats_(stats), norm_(shapes, config.norm_eps, stats) {}

  /// Adds loss and token count to `totals` (StepTotals; on the first tensor rank), the head's gradients to `gradients`,
  /// and writes the gradient of the incoming stream residual + delta [rows of the stream, hidden]. `delta` becomes their
  /// sum, here and below; it may be absent.
  void train(Context& ctx, Tensor gradient, Tensor totals, Tensor residual, Tensor delta, const Batch& batch,
             const HeadParams<Tensor>& weights, const HeadParams<Gradient>& gradients) const;
  /// Adds loss and token count to `totals` (on the first tensor rank).
  void evaluate(Context& ctx, Tensor totals, Tensor residual, Tensor delta, const Batch& batch,
                const HeadParams<Tensor>& weights) const;
  /// logits [n, vocab of this rank] of the last n tokens, data dtype.
  void logits(Context& ctx, Tensor logits, Tensor residual, Tensor delta, const HeadParams<Tensor>& weights) const;

 private:
  NormSaved norm_forward(Context& ctx, ScratchStack::Frame& frame, Tensor residual, Tensor delta, Tensor weight) const;
  std::int64_t chunk_tokens(DeviceKind kind, std::int64_t tokens) const;
  enum class Wanted { loss, gradient };
  /// Logits of tokens [begin, begin + count) of x [tokens, hidden] and their loss; the logits become their gradient where
  /// that is wanted.
  void chunk_loss(Context& ctx, Wanted wanted, Tensor logits, Tensor totals, Tensor x, const Batch& batch,
                  std::int64_t begin, Tensor weight) const;
  /// stats [3, tokens] of this rank's logits become those of the whole vocabulary.
  void merge_over_group(Context& ctx, Tensor stats) const;

  const LocalShapes& shapes_;
  DType stats_;
  Norm norm_;
  Linear projection_;  // with the collectives of a ColumnLinear around all chunks, not around each
};

}  // namespace llmtrain
