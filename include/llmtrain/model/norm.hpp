// SPDX-License-Identifier: Apache-2.0
/// RMSNorm (arXiv 1910.07467) or LayerNorm (arXiv 1607.06450), fused with the residual stream around it.
#pragma once

#include "llmtrain/model/shapes.hpp"
#include "llmtrain/parallel/linear.hpp"

namespace llmtrain {

/// What a norm keeps for its backward.
struct NormSaved {
  Tensor residual;  // [tokens, hidden], the normed input
  Tensor rstd;      // [tokens]
  Factor out;       // [tokens, hidden], as the products that follow take it
  Tensor mean;      // [tokens], of LayerNorm
};

class Norm {
 public:
  Norm(const LocalShapes& shapes, double eps, DType stats) : layer_norm_(shapes.layer_norm), eps_(eps), stats_(stats) {}

  bool keeps_mean() const { return layer_norm_; }
  /// `weight` is [hidden], for LayerNorm [2 hidden]: weight, then bias; gradients likewise.
  /// saved.residual = x + delta, saved.out.matrix = its norm. Without a delta saved.residual must be x already.
  void forward(Context& ctx, const NormSaved& saved, Tensor x, Tensor delta, Tensor weight) const;
  /// gradient += the norm's gradient, in place: in, of the residual after the norm; out, of the residual before it.
  void backward(Context& ctx, Tensor gradient, Gradient d_weight, Tensor d_out, const NormSaved& saved,
                Tensor weight) const;
  /// The same where nothing else reads the residual (final norm): gradient = the norm's gradient alone.
  void backward_last(Context& ctx, Tensor gradient, Gradient d_weight, Tensor d_out, const NormSaved& saved,
                     Tensor weight) const;

 private:
  void backward_into(Context& ctx, Tensor gradient, Tensor incoming, Gradient d_weight, Tensor d_out,
                     const NormSaved& saved, Tensor weight) const;
  bool layer_norm_;
  double eps_;
  DType stats_;
};

}  // namespace llmtrain
