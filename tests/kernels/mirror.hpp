// SPDX-License-Identifier: Apache-2.0
/// MirrorKernels: the kernels of a device with memory of its own, called with tensors in host memory, so that one test
/// serves every back end.
#pragma once

#include <initializer_list>
#include <memory>

#include "llmtrain/backend/kernels.hpp"

namespace llmtrain::test {

/// Each operation uploads all memory between the first and the last element of its tensors (overlapping ones together),
/// runs on the device, waits, and downloads all of it again: gaps and what must not change come back as the device left
/// them.
class MirrorKernels final : public Kernels {
 public:
  explicit MirrorKernels(std::unique_ptr<Device> device);
  ~MirrorKernels() override;

  std::string attention_refusal() const override { return device_->kernels().attention_refusal(); }

 private:
  template <class Run>
  void mirrored(std::span<Tensor* const> tensors, Run&& run);
  template <class Run>
  void mirrored(std::initializer_list<Tensor*> tensors, Run&& run) {
    mirrored(std::span(tensors.begin(), tensors.size()), std::forward<Run>(run));
  }

  void do_gemm(Stream, GemmForm form, Tensor d, Tensor a, Tensor b, Write write, Tensor bias) override;
  bool fuses_gelu(const Tensor& x, Gelu form) const override;
  void do_gemm_gelu_forward(Stream, Tensor out, Tensor x, Tensor a, Tensor b, Tensor bias) override;
  void do_gemm_gelu_backward(Stream, Tensor d_x, Tensor d_y, Tensor b, Tensor x) override;
  void do_embedding_forward(Stream, Tensor out, Tensor ids, Tensor table, VocabRange vocab, Write write) override;
  void do_embedding_backward(Stream, Tensor d_table, Tensor d_out, Tensor ids, Tensor order, VocabRange vocab,
                             Write write) override;
  void do_rms_norm_forward(Stream, Tensor y, Tensor residual, Tensor rstd, Tensor x, Tensor delta, Tensor weight,
                           double eps) override;
  void do_rms_norm_backward(Stream, Tensor d_x, Tensor d_weight, Tensor d_residual, Tensor d_y, Tensor x, Tensor rstd,
                            Tensor weight, Write write, Tensor workspace) override;
  void do_layer_norm_forward(Stream, Tensor y, Tensor residual, Tensor mean, Tensor rstd, Tensor x, Tensor delta,
                             Tensor weight, Tensor bias, double eps) override;
  void do_layer_norm_backward(Stream, Tensor d_x, Tensor d_weight, Tensor d_bias, Tensor d_residual, Tensor d_y,
                              Tensor x, Tensor mean, Tensor rstd, Tensor weight, Write write,
                              Tensor workspace) override;
  void do_rope(Stream, Tensor x, Tensor table, Tensor positions, Rotation direction) override;
  void do_attention_forward(Stream, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor starts,
                            const AttentionOptions& options) override;
  void do_attention_backward(Stream, Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_out, Tensor q, Tensor k, Tensor v,
                             Tensor out, Tensor lse, Tensor starts, const AttentionOptions& options,
                             Tensor workspace) override;
  void do_swiglu_forward(Stream, Tensor out, Tensor gate_up) override;
  void do_swiglu_backward(Stream, Tensor d_gate_up, Tensor d_out, Tensor gate_up) override;
  void do_gelu_forward(Stream, Tensor out, Tensor x, Gelu form) override;
  void do_gelu_backward(Stream, Tensor d_x, Tensor d_out, Tensor x, Gelu form) override;
  void do_bias_add(Stream, Tensor out, Tensor x, Tensor bias) override;
  void do_bias_gradient(Stream, Tensor d_bias, Tensor d_out, Write write) override;
  void do_bias_dropout(Stream, Tensor out, Tensor x, Tensor bias, Tensor samples, const DropoutKey& key) override;
  void do_dropout_backward(Stream, Tensor d_x, Tensor d_out, Tensor samples, const DropoutKey& key) override;
  void do_cross_entropy_stats(Stream, Tensor stats, Tensor logits, Tensor targets, VocabRange vocab) override;
  void do_cross_entropy_merge(Stream, Tensor stats, Tensor parts) override;
  void do_cross_entropy_loss(Stream, Tensor totals, Tensor stats, Tensor weights) override;
  void do_cross_entropy_gradient(Stream, Tensor logits, Tensor stats, Tensor targets, Tensor weights,
                                 VocabRange vocab) override;
  void do_cross_entropy_with_gradient(Stream, Tensor stats, Tensor logits, Tensor targets, Tensor weights,
                                      VocabRange vocab) override;
  void do_add(Stream, Tensor out, Tensor a, Tensor b) override;
  void do_sum_parts(Stream, Tensor out, std::span<const Tensor> parts, Write write) override;
  void do_quantize(Stream, Tensor q, Tensor q_transposed, Tensor scale, Tensor x, Scale known) override;
  void do_convert(Stream, Tensor destination, Tensor source) override;
  void do_copy(Stream, Tensor destination, Tensor source) override;
  void do_fill(Stream, Tensor destination, double value) override;
  void do_init_normal(Stream, Tensor destination, InitKey key, GlobalBlock block, double stddev) override;
  void do_sum_squares(Stream, Tensor totals, Tensor x) override;
  void do_step_scalars(Stream, Tensor scalars, Tensor totals, const StepInputs& inputs) override;
  void do_adamw(Stream, Tensor master, Tensor m, Tensor v, Tensor weights, Tensor gradient, Tensor scalars,
                const AdamWOptions& options) override;

  std::unique_ptr<Device> device_;
  Stream stream_;
  void* memory_ = nullptr;
  void* workspace_memory_ = nullptr;
};

}  // namespace llmtrain::test
