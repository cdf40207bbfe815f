// SPDX-License-Identifier: Apache-2.0
/// Matrix products of the CPU back end.
#pragma once

#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

/// D (+)= op(A) op(B) as Kernels::gemm, tensors read as [rows(), cols()] with any leading dimensions. All three fp32
/// (oneDNN, but for shapes at which it is slow), all three fp64 (own product, the same bits at any number of threads),
/// or A and B bf16 and D bf16 or fp32 (summed in fp32 and rounded once: by oneDNN where the processor multiplies bf16,
/// else by our own), or A and B fp8 with scales (our own). D overlaps neither A nor B. Errors: configuration for other
/// dtypes, internal where the shapes do not fit or oneDNN fails.
void cpu_gemm(GemmForm form, Tensor d, Tensor a, Tensor b, Write write);

/// Whether oneDNN is to multiply bf16: by AMX, or by AVX-512's bf16 products where they are faster than fp32's.
bool has_bf16_products();

/// Extents of one product: D[m, n], summed over k.
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

/// The products behind cpu_gemm; m, n, k >= 1. oneDNN's: fp32, and where has_bf16_products() bf16.
void gemm_dnnl(GemmForm form, GemmShape shape, Tensor d, Tensor a, Tensor b, Write write);
/// Our own: any floating dtype and fp8, computed and summed in its stats dtype.
void gemm_tiled(GemmForm form, GemmShape shape, Tensor d, Tensor a, Tensor b, Write write);

}  // namespace llmtrain
