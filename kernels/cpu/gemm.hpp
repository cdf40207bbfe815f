// SPDX-License-Identifier: Apache-2.0
/// Matrix products of the CPU back end.
#pragma once

#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

/// D (+)= op(A) op(B) as Kernels::gemm, tensors read as [rows(), cols()] with any leading dimensions. All three fp32
/// (oneDNN) or all three fp64 (own blocked product, the same bits at any number of threads). D overlaps neither A nor
/// B. Errors: configuration for other dtypes, internal where the shapes do not fit or oneDNN fails.
void cpu_gemm(GemmForm form, Tensor d, Tensor a, Tensor b, Write write);

/// Extents of one product: D[m, n], summed over k.
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

/// The fp32 and fp64 products behind cpu_gemm; m, n, k >= 1.
void gemm_fp32(GemmForm form, GemmShape shape, Tensor d, Tensor a, Tensor b, Write write);
void gemm_fp64(GemmForm form, GemmShape shape, Tensor d, Tensor a, Tensor b, Write write);

}  // namespace llmtrain
