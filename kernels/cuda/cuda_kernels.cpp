// SPDX-License-Identifier: Apache-2.0
/// Making of the CUDA kernels, and the operations that NVIDIA's libraries do.
#include "cuda/cuda_kernels.hpp"

#include <fmt/format.h>

#include "cuda/attention.hpp"
#include "cuda/gemm.hpp"
#include "cuda/gemm_tuner.hpp"
#include "llmtrain/backend/workspace.hpp"
#include "llmtrain/base/host.hpp"

namespace llmtrain {

CudaKernels::CudaKernels(const CudaStreams& streams, bool deterministic)
    : streams_(streams),
      gemm_(std::make_unique<CudaGemm>(deterministic)),
      tuner_(std::make_unique<CudaGemmTuner>(*this, *gemm_, streams)),
      attention_(std::make_unique<CudnnAttention>(deterministic)) {}

CudaKernels::~CudaKernels() = default;

GemmTuner* CudaKernels::gemm_tuner() { return is_switched_on("LLMTRAIN_TUNE_GEMM", true) ? tuner_.get() : nullptr; }

void* CudaKernels::partial_sums(std::int64_t bytes) const {
  const std::int64_t libraries = workspace().bytes() - cuda_partial_sums_bytes;
  require(libraries >= 0 && bytes <= cuda_partial_sums_bytes, ExitCode::internal,
          "internal error: an operation needs {} bytes for partial sums; the workspace has {}", bytes,
          workspace().bytes());
  return static_cast<char*>(workspace().data) + libraries;
}

Tensor CudaKernels::library_workspace() const {
  const Tensor all = workspace();
  return all ? all.flat(0, all.bytes() - cuda_partial_sums_bytes) : all;
}

void CudaKernels::do_gemm(Stream s, GemmForm form, Tensor d, Tensor a, Tensor b, Write write, Tensor bias) {
  if (d.numel() == 0) return;
  const std::int64_t k = form == GemmForm::tn ? a.rows() : a.cols();
  if (k == 0) {  // an empty sum
    if (write == Write::overwrite) do_fill(s, d, 0);
  } else {
    const Tensor fused = d.dtype == DType::fp64 ? Tensor{} : bias;  // cuBLASLt has no fp64 epilogues
    gemm_->run(streams_[s], form, {d, a, b, fused, library_workspace(), write});
    if (fused) return;
  }
  if (bias) do_bias_add(s, d, d, bias);
}

bool CudaKernels::fuses_gelu(const Tensor& x, Gelu form) const { return is_gelu_of_products(x, form); }

void CudaKernels::do_gemm_gelu_forward(Stream s, Tensor out, Tensor x, Tensor a, Tensor b, Tensor bias) {
  if (out.numel() == 0) return;
  gemm_->run(streams_[s], GemmForm::nt, {out, a, b, bias, library_workspace(), Write::overwrite, x}, Epilogue::gelu);
}

void CudaKernels::do_gemm_gelu_backward(Stream s, Tensor d_x, Tensor d_y, Tensor b, Tensor x) {
  if (d_x.numel() == 0) return;
  gemm_->run(streams_[s], GemmForm::nn, {d_x, d_y, b, {}, library_workspace(), Write::overwrite, x},
             Epilogue::gelu_gradient);
}

std::string CudaKernels::attention_refusal() const { return attention_->refusal(); }

void CudaKernels::warn_of_plain_attention(const AttentionShape& shape) {
  const double pairs = static_cast<double>(shape.batch * shape.heads) * static_cast<double>(shape.sequence) *
                       static_cast<double>(shape.sequence);
  if (warned_ || (pairs < 0x1p26 && !attention_->surprised())) return;  // small ones are quick either way
  warned_ = true;
  fmt::print(stderr,
             "warning: attention runs in plain kernels, many times slower than cuDNN, which does not take it: {}\n",
             attention_->refusal());
}

void CudaKernels::do_attention_forward(Stream s, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor starts,
                                       const AttentionOptions& options) {
  const AttentionTensors t{q, k, v, out, lse, starts, {}, {}, {}, {}};
  if (q.numel() == 0 || attention_->forward(streams_[s], t, options, library_workspace())) return;
  if (q.dtype == DType::bf16) warn_of_plain_attention(options.shape);
  plain_attention_forward(streams_[s], t, options);
}

void CudaKernels::do_attention_backward(Stream s, Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_out, Tensor q, Tensor k,
                                        Tensor v, Tensor out, Tensor lse, Tensor starts,
                                        const AttentionOptions& options, Tensor workspace) {
  const AttentionTensors t{q, k, v, out, lse, starts, d_q, d_k, d_v, d_out};
  if (q.numel() == 0 || attention_->backward(streams_[s], t, options, workspace)) return;
  if (q.dtype == DType::bf16) warn_of_plain_attention(options.shape);
  const AttentionShape& shape = options.shape;
  const std::int64_t tokens = shape.batch * shape.sequence, needed = shape.heads * tokens * size_of(lse.dtype);
  require(workspace.bytes() >= needed, ExitCode::internal,
          "internal error: attention_backward on {} needs {} bytes of workspace, has {}", q.describe(), needed,
          workspace.bytes());
  plain_attention_backward(streams_[s], t, Tensor::dense(workspace.data, lse.dtype, {shape.heads, tokens}), options);
}

}  // namespace llmtrain
