// SPDX-License-Identifier: Apache-2.0
/// Matrix products by cuBLASLt.
#pragma once

#include <map>
#include <memory>

#include "cuda/gemm_plan.hpp"

namespace llmtrain {

/// A product is computed by the algorithm that was chosen for it, else by cuBLASLt's first proposal, which is kept.
class CudaGemm {
 public:
  explicit CudaGemm(bool deterministic);
  ~CudaGemm();
  CudaGemm(const CudaGemm&) = delete;
  CudaGemm& operator=(const CudaGemm&) = delete;

  /// As Kernels::gemm, on shapes and dtypes already checked there, none of them 0; no bias in fp64.
  void run(cudaStream_t stream, GemmForm form, const GemmOperands& on, Epilogue epilogue = Epilogue::none);
  void use(const GemmChoices& choices);

  bool deterministic() const { return deterministic_; }
  cublasLtHandle_t handle() const { return handle_; }

 private:
  struct Product {
    std::unique_ptr<GemmPlan> plan;
    cublasLtMatmulAlgo_t algorithm;
  };

  bool deterministic_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<GemmKey, Product> products_;
};

}  // namespace llmtrain
