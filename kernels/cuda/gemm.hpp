// SPDX-License-Identifier: Apache-2.0
/// Matrix products by cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "cuda/streams.hpp"
#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

/// Everything that cuBLASLt's choice of an algorithm depends on.
struct GemmKey {
  GemmForm form;
  DType data, result;
  std::int64_t m, n, k, lda, ldb, ldd;
  int alignment;  ///< of all operands, in bytes, at most 16

  auto operator<=>(const GemmKey&) const = default;
};

/// Matrices are row-major: cuBLASLt, which counts by columns, is asked for the transposed product. A shape's algorithm is
/// chosen when it is first met, and kept.
class CudaGemm {
 public:
  CudaGemm();
  ~CudaGemm();
  CudaGemm(const CudaGemm&) = delete;
  CudaGemm& operator=(const CudaGemm&) = delete;

  /// As Kernels::gemm, on shapes and dtypes already checked there, none of them 0. `workspace`: uint8.
  void run(cudaStream_t stream, GemmForm form, Tensor d, Tensor a, Tensor b, Write write, Tensor workspace);

 private:
  struct Plan;
  const Plan& plan_of(const GemmKey& key, std::int64_t workspace_bytes);

  cublasLtHandle_t handle_ = nullptr;
  std::map<GemmKey, std::unique_ptr<Plan>> plans_;
};

}  // namespace llmtrain
