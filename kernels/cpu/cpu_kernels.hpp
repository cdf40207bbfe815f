// SPDX-License-Identifier: Apache-2.0
/// The operations of the CPU back end, on OpenMP threads. Results are the same bits for every number of threads: what
/// is summed together, and in which order, depends on the sizes of the tensors alone.
#pragma once

#include <memory>

#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

/// Data are bf16, fp32 or fp64, computed in their stats dtype; operations run at once, in the caller's thread and its OpenMP team. Streams are not
/// looked at.
class CpuKernels final : public Kernels {
  void do_gemm(Stream, GemmForm form, Tensor d, Tensor a, Tensor b, Write write, Tensor bias) override;
  bool fuses_gelu(const Tensor&, Gelu) const override { return false; }
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
  void do_quantize(Stream s, Tensor q, Tensor q_transposed, Tensor scale, Tensor x, Scale known) override;
  void do_convert(Stream, Tensor destination, Tensor source) override;
  void do_copy(Stream, Tensor destination, Tensor source) override;
  void do_fill(Stream, Tensor destination, double value) override;
  void do_init_normal(Stream, Tensor destination, InitKey key, GlobalBlock block, double stddev) override;
  void do_sum_squares(Stream, Tensor totals, Tensor x) override;
  void do_step_scalars(Stream, Tensor scalars, Tensor totals, const StepInputs& inputs) override;
  void do_adamw(Stream, Tensor master, Tensor m, Tensor v, Tensor weights, Tensor gradient, Tensor scalars,
                const AdamWOptions& options) override;
};

std::unique_ptr<Kernels> make_cpu_kernels();

}  // namespace llmtrain
