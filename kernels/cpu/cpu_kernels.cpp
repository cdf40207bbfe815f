// SPDX-License-Identifier: Apache-2.0
/// The maker of the CPU kernels, and the operations that have files of their own.
#include "cpu/cpu_kernels.hpp"

#include "cpu/attention.hpp"
#include "cpu/gemm.hpp"

namespace llmtrain {

std::unique_ptr<Kernels> make_cpu_kernels() { return std::make_unique<CpuKernels>(); }

void CpuKernels::do_gemm(Stream s, GemmForm form, Tensor d, Tensor a, Tensor b, Write write, Tensor bias) {
  cpu_gemm(form, d, a, b, write);
  if (bias) do_bias_add(s, d, d, bias);
}

void CpuKernels::do_attention_forward(Stream, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor starts,
                                      const AttentionOptions& options) {
  cpu_attention_forward(out, lse, q, k, v, starts, options);
}

void CpuKernels::do_attention_backward(Stream, Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_out, Tensor q, Tensor k,
                                       Tensor v, Tensor out, Tensor lse, Tensor starts, const AttentionOptions& options,
                                       Tensor workspace) {
  cpu_attention_backward(d_q, d_k, d_v, d_out, q, k, v, out, lse, starts, options, workspace);
}

}  // namespace llmtrain
