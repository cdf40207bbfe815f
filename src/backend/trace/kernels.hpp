// SPDX-License-Identifier: Apache-2.0
/// TraceKernels: every operation is checked and noted by the public call and does nothing else.
#pragma once

#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

class TraceKernels final : public Kernels {
 public:
  explicit TraceKernels(DeviceKind kind) : kind_(kind) {}

 private:
  void do_gemm(Stream, GemmForm, Tensor, Tensor, Tensor, Write, Tensor) override {}
  bool fuses_gelu(const Tensor& x, Gelu form) const override {
    return kind_ == DeviceKind::cuda && is_gelu_of_products(x, form);
  }
  void do_gemm_gelu_forward(Stream, Tensor, Tensor, Tensor, Tensor, Tensor) override {}
  void do_gemm_gelu_backward(Stream, Tensor, Tensor, Tensor, Tensor) override {}
  void do_embedding_forward(Stream, Tensor, Tensor, Tensor, VocabRange, Write) override {}
  void do_embedding_backward(Stream, Tensor, Tensor, Tensor, Tensor, VocabRange, Write) override {}
  void do_rms_norm_forward(Stream, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, double) override {}
  void do_rms_norm_backward(Stream, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Write, Tensor) override {}
  void do_layer_norm_forward(Stream, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, double) override {}
  void do_layer_norm_backward(Stream, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Write,
                              Tensor) override {}
  void do_rope(Stream, Tensor, Tensor, Tensor, Rotation) override {}
  void do_attention_forward(Stream, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, const AttentionOptions&) override {}
  void do_attention_backward(Stream, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                             const AttentionOptions&, Tensor) override {}
  void do_swiglu_forward(Stream, Tensor, Tensor) override {}
  void do_swiglu_backward(Stream, Tensor, Tensor, Tensor) override {}
  void do_gelu_forward(Stream, Tensor, Tensor, Gelu) override {}
  void do_gelu_backward(Stream, Tensor, Tensor, Tensor, Gelu) override {}
  void do_bias_add(Stream, Tensor, Tensor, Tensor) override {}
  void do_bias_gradient(Stream, Tensor, Tensor, Write) override {}
  void do_bias_dropout(Stream, Tensor, Tensor, Tensor, Tensor, const DropoutKey&) override {}
  void do_dropout_backward(Stream, Tensor, Tensor, Tensor, const DropoutKey&) override {}
  void do_cross_entropy_stats(Stream, Tensor, Tensor, Tensor, VocabRange) override {}
  void do_cross_entropy_merge(Stream, Tensor, Tensor) override {}
  void do_cross_entropy_loss(Stream, Tensor, Tensor, Tensor) override {}
  void do_cross_entropy_gradient(Stream, Tensor, Tensor, Tensor, Tensor, VocabRange) override {}
  void do_cross_entropy_with_gradient(Stream, Tensor, Tensor, Tensor, Tensor, VocabRange) override {}
  void do_add(Stream, Tensor, Tensor, Tensor) override {}
  void do_sum_parts(Stream, Tensor, std::span<const Tensor>, Write) override {}
  void do_quantize(Stream, Tensor, Tensor, Tensor, Tensor, Scale) override {}
  void do_convert(Stream, Tensor, Tensor) override {}
  void do_copy(Stream, Tensor, Tensor) override {}
  void do_fill(Stream, Tensor, double) override {}
  void do_init_normal(Stream, Tensor, InitKey, GlobalBlock, double) override {}
  void do_sum_squares(Stream, Tensor, Tensor) override {}
  void do_step_scalars(Stream, Tensor, Tensor, const StepInputs&) override {}
  void do_adamw(Stream, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, const AdamWOptions&) override {}

  DeviceKind kind_;
};

}  // namespace llmtrain
