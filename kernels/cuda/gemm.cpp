// SPDX-License-Identifier: Apache-2.0
/// Descriptors, layouts and algorithms of cuBLASLt, one set a shape.
#include "cuda/gemm.hpp"

#include <algorithm>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

void check_cublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  fail(ExitCode::internal, "cuBLASLt: {}: {}", call, cublasLtGetStatusString(status));
}

cudaDataType_t cuda_type(DType type) {
  switch (type) {
    case DType::bf16: return CUDA_R_16BF;
    case DType::fp32: return CUDA_R_32F;
    case DType::fp64: return CUDA_R_64F;
    default:
      fail(ExitCode::internal, "internal error: gemm on the GPU takes bf16, fp32 and fp64, not {}", name_of(type));
  }
}

/// Largest power of two, up to 16 (no kernel wants more), that divides the address and the rows' distance.
int alignment_of(const Tensor& t) {
  const auto bits = reinterpret_cast<std::uintptr_t>(t.data) |
                    static_cast<std::uintptr_t>(t.rows() > 1 ? t.leading * size_of(t.dtype) : 0) | 16u;
  return static_cast<int>(bits & -bits);
}

/// A row-major [rows, cols] matrix, which is the column-major [cols, rows].
class Layout {
 public:
  Layout(DType type, std::int64_t rows, std::int64_t cols, std::int64_t leading) {
    check_cublas(cublasLtMatrixLayoutCreate(&layout_, cuda_type(type), static_cast<std::uint64_t>(cols),
                                            static_cast<std::uint64_t>(rows), std::max(leading, cols)),
                 "cublasLtMatrixLayoutCreate");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  operator cublasLtMatrixLayout_t() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class Descriptor {
 public:
  Descriptor(DType data, bool first_transposed, bool second_transposed) {
    const bool fp64 = data == DType::fp64;
    check_cublas(cublasLtMatmulDescCreate(&descriptor_, fp64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                          fp64 ? CUDA_R_64F : CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, first_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, second_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  }
  ~Descriptor() { cublasLtMatmulDescDestroy(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator cublasLtMatmulDesc_t() const { return descriptor_; }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check_cublas(cublasLtMatmulDescSetAttribute(descriptor_, attribute, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
  }
  cublasLtMatmulDesc_t descriptor_ = nullptr;
};

class Preference {
 public:
  Preference(std::int64_t workspace_bytes, int alignment) {
    check_cublas(cublasLtMatmulPreferenceCreate(&preference_), "cublasLtMatmulPreferenceCreate");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::size_t>(workspace_bytes));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(attribute, static_cast<std::uint32_t>(alignment));
    }
  }
  ~Preference() { cublasLtMatmulPreferenceDestroy(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  operator cublasLtMatmulPreference_t() const { return preference_; }

 private:
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
  }
  cublasLtMatmulPreference_t preference_ = nullptr;
};

}  // namespace

/// The transposed product D^T = op(B)^T op(A)^T: cuBLASLt's first operand is ours second.
struct CudaGemm::Plan {
  explicit Plan(const GemmKey& key)
      : descriptor(key.data, key.form == GemmForm::nt, key.form == GemmForm::tn),
        first(key.data, key.form == GemmForm::nt ? key.n : key.k, key.form == GemmForm::nt ? key.k : key.n, key.ldb),
        second(key.data, key.form == GemmForm::tn ? key.k : key.m, key.form == GemmForm::tn ? key.m : key.k, key.lda),
        result(key.result, key.m, key.n, key.ldd) {}

  Descriptor descriptor;
  Layout first, second, result;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
};

CudaGemm::CudaGemm() { check_cublas(cublasLtCreate(&handle_), "cublasLtCreate"); }

CudaGemm::~CudaGemm() { cublasLtDestroy(handle_); }

const CudaGemm::Plan& CudaGemm::plan_of(const GemmKey& key, std::int64_t workspace_bytes) {
  std::unique_ptr<Plan>& plan = plans_[key];
  if (plan != nullptr) [[likely]]
    return *plan;
  auto fresh = std::make_unique<Plan>(key);
  const Preference preference(workspace_bytes, key.alignment);
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, fresh->descriptor, fresh->first, fresh->second, fresh->result,
                                     fresh->result, preference, 1, &best, &found);
  require(status == CUBLAS_STATUS_SUCCESS && found > 0, ExitCode::internal,
          "cuBLASLt has no algorithm for a {} product [{}, {}] x [{}, {}] into {} (aligned to {} bytes): {}",
          name_of(key.data), key.m, key.k, key.k, key.n, name_of(key.result), key.alignment,
          cublasLtGetStatusString(status));
  fresh->algorithm = best.algo;
  fresh->workspace_bytes = best.workspaceSize;
  plan = std::move(fresh);
  return *plan;
}

void CudaGemm::run(cudaStream_t stream, GemmForm form, Tensor d, Tensor a, Tensor b, Write write, Tensor workspace) {
  const GemmKey key{form,      a.dtype,
                    d.dtype,   d.rows(),
                    d.cols(),  form == GemmForm::tn ? a.rows() : a.cols(),
                    a.leading, b.leading,
                    d.leading, std::min({alignment_of(a), alignment_of(b), alignment_of(d)})};
  const Plan& plan = plan_of(key, workspace.bytes());
  const float one = 1, beta = write == Write::accumulate ? 1 : 0;
  const double one64 = 1, beta64 = beta;
  const bool fp64 = key.data == DType::fp64;
  check_cublas(
      cublasLtMatmul(handle_, plan.descriptor, fp64 ? static_cast<const void*>(&one64) : &one, b.data, plan.first,
                     a.data, plan.second, fp64 ? static_cast<const void*>(&beta64) : &beta, d.data, plan.result, d.data,
                     plan.result, &plan.algorithm, workspace.data, plan.workspace_bytes, stream),
      "cublasLtMatmul");
}

}  // namespace llmtrain
