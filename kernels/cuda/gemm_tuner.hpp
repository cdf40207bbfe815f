// SPDX-License-Identifier: Apache-2.0
/// CudaGemmTuner: cuBLASLt's proposals for a product against the clock.
#pragma once

#include <string>
#include <vector>

#include "cuda/gemm.hpp"

namespace llmtrain {

class CudaKernels;

cublasLtMatmulAlgo_t cublas_algorithm(const GemmChoice& choice);

/// Products are timed on random numbers, for the clock of a GPU that multiplies zeros is higher.
class CudaGemmTuner final : public GemmTuner {
 public:
  /// All must outlive the tuner.
  CudaGemmTuner(CudaKernels& kernels, CudaGemm& gemm, const CudaStreams& streams);
  ~CudaGemmTuner() override;
  CudaGemmTuner(const CudaGemmTuner&) = delete;
  CudaGemmTuner& operator=(const CudaGemmTuner&) = delete;

  std::string identity() const override;
  bool accepts(const GemmKey& key, const GemmChoice& choice) override;
  GemmChoice fastest(Stream s, const GemmKey& key, Tensor memory, Timing timing) override;
  void use(const GemmChoices& choices) override { gemm_.use(choices); }

 private:
  struct Candidate {
    cublasLtMatmulAlgo_t algorithm;
    double seconds;
  };
  GemmOperands place(Stream s, const GemmKey& key, Tensor memory) const;
  /// The algorithms that work, with the time each takes in a burst, fastest first.
  std::vector<Candidate> candidates(const GemmPlan& plan, cudaStream_t stream, const GemmKey& key,
                                    const GemmOperands& on) const;
  /// Seconds of one of `count` products in a row, NaN where they fail.
  double time(const GemmPlan& plan, cudaStream_t stream, const GemmOperands& on, const cublasLtMatmulAlgo_t& algorithm,
              int count) const;

  CudaKernels& kernels_;
  CudaGemm& gemm_;
  const CudaStreams& streams_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace llmtrain
