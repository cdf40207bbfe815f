// SPDX-License-Identifier: Apache-2.0
/// Matrix products by cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "cuda/gemm_choices.hpp"
#include "cuda/streams.hpp"
#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

/// Matrices are row-major: cuBLASLt, which counts by columns, is asked for the transposed product. A shape's algorithm is
/// chosen when it is first met, and kept: the best of cuBLASLt's proposals by timing, or its first proposal where the
/// product is small or results have to be the same in every run.
class CudaGemm {
 public:
  explicit CudaGemm(bool deterministic);
  ~CudaGemm();
  CudaGemm(const CudaGemm&) = delete;
  CudaGemm& operator=(const CudaGemm&) = delete;

  /// A product as Kernels::gemm has it, on shapes and dtypes already checked there, none of them 0; no bias in fp64.
  struct Call {
    cudaStream_t stream;
    GemmForm form;
    Tensor d, a, b;
    Write write;
    Tensor bias;
    Tensor workspace;  ///< uint8
    Epilogue epilogue;
    Tensor
        gelu;  ///< the input of GeLU, [m, n]: stored beside d = gelu(input), or read where d is multiplied by its derivative
  };
  void run(const Call& call);

 private:
  struct Plan;
  using Algorithms = std::vector<cublasLtMatmulAlgo_t>;

  const Plan& plan_of(const GemmKey& key, const Call& call);
  Algorithms proposals(const Plan& plan, const GemmKey& key, const Call& call, int count) const;
  cublasLtMatmulAlgo_t choose(const Plan& plan, const GemmKey& key, const Call& call);
  cublasLtMatmulAlgo_t fastest(const Plan& plan, const GemmKey& key, const Call& call, Algorithms candidates) const;
  /// Seconds of one product: the median over `runs` of `batch` products in a row, NaN where it fails.
  double time(const Plan& plan, const Call& call, const cublasLtMatmulAlgo_t& algorithm, void* result, int batch,
              int runs) const;
  cublasStatus_t multiply(const Plan& plan, const Call& call, const cublasLtMatmulAlgo_t& algorithm, void* result,
                          Write write) const;

  bool tunes_;
  cublasLtHandle_t handle_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  GemmChoices choices_;
  std::map<GemmKey, std::unique_ptr<Plan>> plans_;
};

}  // namespace llmtrain
