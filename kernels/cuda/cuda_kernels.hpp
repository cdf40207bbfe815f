// SPDX-License-Identifier: Apache-2.0
/// The operations of the CUDA back end: own kernels, cuBLASLt and cuDNN. Work is queued on the stream it is given and
/// the host waits for nothing.
#pragma once

#include <memory>

#include "cuda/streams.hpp"
#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

class CudaGemm;
class CudaGemmTuner;
class CudnnAttention;

/// Data are bf16, fp32 or fp64, computed in their stats dtype. Sums are made in an order that depends on sizes only, but
/// for the gradients of attention outside run.deterministic. `workspace` (Kernels::use_workspace) serves one stream at a
/// time.
class CudaKernels final : public Kernels {
 public:
  /// `deterministic`: the same bits in every run. The streams must outlive the kernels.
  CudaKernels(const CudaStreams& streams, bool deterministic);
  ~CudaKernels() override;

  GemmTuner* gemm_tuner() override;  ///< none with LLMTRAIN_TUNE_GEMM=0 in the environment
  Tensor library_workspace() const;  ///< the workspace without the part for sums of blocks
  std::string attention_refusal() const override;

 private:
  void do_gemm(Stream s, GemmForm form, Tensor d, Tensor a, Tensor b, Write write, Tensor bias) override;
  bool fuses_gelu(const Tensor& x, Gelu form) const override;
  void do_gemm_gelu_forward(Stream s, Tensor out, Tensor x, Tensor a, Tensor b, Tensor bias) override;
  void do_gemm_gelu_backward(Stream s, Tensor d_x, Tensor d_y, Tensor b, Tensor x) override;
  void do_embedding_forward(Stream s, Tensor out, Tensor ids, Tensor table, VocabRange vocab, Write write) override;
  void do_embedding_backward(Stream s, Tensor d_table, Tensor d_out, Tensor ids, Tensor order, VocabRange vocab,
                             Write write) override;
  void do_rms_norm_forward(Stream s, Tensor y, Tensor residual, Tensor rstd, Tensor x, Tensor delta, Tensor weight,
                           double eps) override;
  void do_rms_norm_backward(Stream s, Tensor d_x, Tensor d_weight, Tensor d_residual, Tensor d_y, Tensor x, Tensor rstd,
                            Tensor weight, Write write, Tensor workspace) override;
  void do_layer_norm_forward(Stream s, Tensor y, Tensor residual, Tensor mean, Tensor rstd, Tensor x, Tensor delta,
                             Tensor weight, Tensor bias, double eps) override;
  void do_layer_norm_backward(Stream s, Tensor d_x, Tensor d_weight, Tensor d_bias, Tensor d_residual, Tensor d_y,
                              Tensor x, Tensor mean, Tensor rstd, Tensor weight, Write write,
                              Tensor workspace) override;
  void do_rope(Stream s, Tensor x, Tensor table, Tensor positions, Rotation direction) override;
  void do_attention_forward(Stream s, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor starts,
                            const AttentionOptions& options) override;
  void do_attention_backward(Stream s, Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_out, Tensor q, Tensor k, Tensor v,
                             Tensor out, Tensor lse, Tensor starts, const AttentionOptions& options,
                             Tensor workspace) override;
  void do_swiglu_forward(Stream s, Tensor out, Tensor gate_up) override;
  void do_swiglu_backward(Stream s, Tensor d_gate_up, Tensor d_out, Tensor gate_up) override;
  void do_gelu_forward(Stream s, Tensor out, Tensor x, Gelu form) override;
  void do_gelu_backward(Stream s, Tensor d_x, Tensor d_out, Tensor x, Gelu form) override;
  void do_bias_add(Stream s, Tensor out, Tensor x, Tensor bias) override;
  void do_bias_gradient(Stream s, Tensor d_bias, Tensor d_out, Write write) override;
  void do_bias_dropout(Stream s, Tensor out, Tensor x, Tensor bias, Tensor samples, const DropoutKey& key) override;
  void do_dropout_backward(Stream s, Tensor d_x, Tensor d_out, Tensor samples, const DropoutKey& key) override;
  void do_cross_entropy_stats(Stream s, Tensor stats, Tensor logits, Tensor targets, VocabRange vocab) override;
  void do_cross_entropy_merge(Stream s, Tensor stats, Tensor parts) override;
  void do_cross_entropy_loss(Stream s, Tensor totals, Tensor stats, Tensor weights) override;
  void do_cross_entropy_gradient(Stream s, Tensor logits, Tensor stats, Tensor targets, Tensor weights,
                                 VocabRange vocab) override;
  void do_cross_entropy_with_gradient(Stream s, Tensor stats, Tensor logits, Tensor targets, Tensor weights,
                                      VocabRange vocab) override;
  void do_add(Stream s, Tensor out, Tensor a, Tensor b) override;
  void do_sum_parts(Stream s, Tensor out, std::span<const Tensor> parts, Write write) override;
  void do_quantize(Stream s, Tensor q, Tensor q_transposed, Tensor scale, Tensor x, Scale known) override;
  void do_convert(Stream s, Tensor destination, Tensor source) override;
  void do_copy(Stream s, Tensor destination, Tensor source) override;
  void do_fill(Stream s, Tensor destination, double value) override;
  void do_init_normal(Stream s, Tensor destination, InitKey key, GlobalBlock block, double stddev) override;
  void do_sum_squares(Stream s, Tensor totals, Tensor x) override;
  void do_step_scalars(Stream s, Tensor scalars, Tensor totals, const StepInputs& inputs) override;
  void do_adamw(Stream s, Tensor master, Tensor m, Tensor v, Tensor weights, Tensor gradient, Tensor scalars,
                const AdamWOptions& options) override;

  void* partial_sums(std::int64_t bytes) const;  ///< the workspace's part for sums of blocks, at least `bytes` long
  void warn_of_plain_attention(const AttentionShape& shape);

  const CudaStreams& streams_;
  std::unique_ptr<CudaGemm> gemm_;
  std::unique_ptr<CudaGemmTuner> tuner_;
  std::unique_ptr<CudnnAttention> attention_;
  bool warned_ = false;
};

}  // namespace llmtrain
