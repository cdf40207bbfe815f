// SPDX-License-Identifier: Apache-2.0
/// GemmPlan: one matrix product as cuBLASLt knows it.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/streams.hpp"
#include "llmtrain/backend/gemm_choices.hpp"

namespace llmtrain {

void check_cublas(cublasStatus_t status, const char* call);

/// What one product works on; the workspace is uint8.
struct GemmOperands {
  Tensor d, a, b, bias, workspace;
  Write write = Write::overwrite;
  Tensor gelu =
      {};  ///< its input [m, n]: stored beside d = gelu(input), or read where d is multiplied by its derivative
};

/// Matrices are row-major: cuBLASLt, which counts by columns, is asked for the transposed product
/// D^T = op(B)^T op(A)^T, so that its first operand is our second.
class GemmPlan {
 public:
  /// The handle must outlive the plan.
  GemmPlan(cublasLtHandle_t handle, const GemmKey& key);
  ~GemmPlan();
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;

  /// At most `count` algorithms in the order of cuBLASLt's estimate, one at least. `repeatable`: only such as add up partial
  /// sums in a fixed order.
  std::vector<cublasLtMatmulAlgo_t> proposals(const GemmOperands& on, int count, bool repeatable) const;
  bool accepts(const cublasLtMatmulAlgo_t& algorithm, std::int64_t workspace_bytes) const;
  cublasStatus_t multiply(cudaStream_t stream, const GemmOperands& on, const cublasLtMatmulAlgo_t& algorithm) const;

 private:
  struct Descriptors;

  cublasLtHandle_t handle_;
  GemmKey key_;
  std::unique_ptr<Descriptors> of_;
};

}  // namespace llmtrain
