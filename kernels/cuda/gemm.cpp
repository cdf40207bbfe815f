// SPDX-License-Identifier: Apache-2.0
/// Plans by product.
#include "cuda/gemm.hpp"

#include <utility>

#include "cuda/gemm_tuner.hpp"

namespace llmtrain {

CudaGemm::CudaGemm(bool deterministic) : deterministic_(deterministic) {
  check_cublas(cublasLtCreate(&handle_), "cublasLtCreate");
}

CudaGemm::~CudaGemm() { cublasLtDestroy(handle_); }

void CudaGemm::use(const GemmChoices& choices) {
  for (const auto& [key, choice] : choices) {
    products_[key] = {std::make_unique<GemmPlan>(handle_, key), cublas_algorithm(choice)};
  }
}

void CudaGemm::run(cudaStream_t stream, GemmForm form, const GemmOperands& on, Epilogue epilogue) {
  const GemmKey key = key_of(form, on.d, on.a, on.b, static_cast<bool>(on.bias), epilogue, on.gelu);
  Product& product = products_[key];
  if (product.plan == nullptr) [[unlikely]] {
    auto fresh = std::make_unique<GemmPlan>(handle_, key);
    product.algorithm = fresh->proposals(on, 1, deterministic_).front();
    product.plan = std::move(fresh);
  }
  check_cublas(product.plan->multiply(stream, on, product.algorithm), "cublasLtMatmul");
}

}  // namespace llmtrain
