// SPDX-License-Identifier: Apache-2.0
/// Descriptors, layouts and preferences of cuBLASLt.
#include "cuda/gemm_plan.hpp"

#include <algorithm>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

void check_cublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  fail(ExitCode::internal, "cuBLASLt: {}: {}", call, cublasLtGetStatusString(status));
}

namespace {

cudaDataType_t cuda_type(DType type) {
  switch (type) {
    case DType::bf16: return CUDA_R_16BF;
    case DType::fp32: return CUDA_R_32F;
    case DType::fp64: return CUDA_R_64F;
    case DType::fp8_e4m3: return CUDA_R_8F_E4M3;
    case DType::fp8_e5m2: return CUDA_R_8F_E5M2;
    default:
      fail(ExitCode::internal, "internal error: gemm on the GPU takes fp8, bf16, fp32 and fp64, not {}", name_of(type));
  }
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
  explicit Descriptor(const GemmKey& key) {
    const bool fp64 = key.data == DType::fp64;
    check_cublas(cublasLtMatmulDescCreate(&descriptor_, fp64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                          fp64 ? CUDA_R_64F : CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, key.form == GemmForm::nt ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, key.form == GemmForm::tn ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(key));
    if (key.epilogue != Epilogue::none) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.ld_gelu);
    // Tensor cores of Hopper keep 14 bits of sums of fp8 products: enough for what is forward, where both are E4M3.
    const bool forward = key.data == DType::fp8_e4m3 && key.data_b == DType::fp8_e4m3;
    if (is_fp8(key.data)) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(forward));
  }
  ~Descriptor() { cublasLtMatmulDescDestroy(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator cublasLtMatmulDesc_t() const { return descriptor_; }
  void point_at(const GemmOperands& on) const {
    if (on.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, on.bias.data);
    if (on.gelu) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, on.gelu.data);
    if (on.b.scale != nullptr) set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, on.b.scale);
    if (on.a.scale != nullptr) set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, on.a.scale);
  }

 private:
  static cublasLtEpilogue_t epilogue_of(const GemmKey& key) {
    switch (key.epilogue) {
      case Epilogue::none: return key.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
      case Epilogue::gelu: return key.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      case Epilogue::gelu_gradient: break;
    }
    return CUBLASLT_EPILOGUE_DGELU;
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) const {
    check_cublas(cublasLtMatmulDescSetAttribute(descriptor_, attribute, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
  }
  cublasLtMatmulDesc_t descriptor_ = nullptr;
};

class Preference {
 public:
  Preference(const GemmKey& key, std::int64_t workspace_bytes, bool repeatable) {
    check_cublas(cublasLtMatmulPreferenceCreate(&preference_), "cublasLtMatmulPreferenceCreate");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::size_t>(workspace_bytes));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(attribute, static_cast<std::uint32_t>(key.alignment));
    }
    // In place, parts are added in the order in which they are ready; into bf16, each addition would round.
    std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    if (repeatable || key.result == DType::bf16) reductions &= ~std::uint32_t{CUBLASLT_REDUCTION_SCHEME_INPLACE};
    if (key.result == DType::bf16) reductions &= ~std::uint32_t{CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE};
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
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

struct GemmPlan::Descriptors {
  explicit Descriptors(const GemmKey& key)
      : product(key),
        first(key.data_b, key.form == GemmForm::nt ? key.n : key.k, key.form == GemmForm::nt ? key.k : key.n, key.ldb),
        second(key.data, key.form == GemmForm::tn ? key.k : key.m, key.form == GemmForm::tn ? key.m : key.k, key.lda),
        result(key.result, key.m, key.n, key.ldd) {}

  Descriptor product;
  Layout first, second, result;
};

GemmPlan::GemmPlan(cublasLtHandle_t handle, const GemmKey& key)
    : handle_(handle), key_(key), of_(std::make_unique<Descriptors>(key)) {}

GemmPlan::~GemmPlan() = default;

std::vector<cublasLtMatmulAlgo_t> GemmPlan::proposals(const GemmOperands& on, int count, bool repeatable) const {
  of_->product.point_at(on);  // their alignment counts too
  const Preference preference(key_, on.workspace.bytes(), repeatable);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(count));
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, of_->product, of_->first, of_->second, of_->result, of_->result,
                                     preference, count, results.data(), &found);
  require(status == CUBLAS_STATUS_SUCCESS && found > 0, ExitCode::internal,
          "cuBLASLt has no algorithm for a {} product [{}, {}] x [{}, {}] into {} (aligned to {} bytes): {}",
          name_of(key_.data), key_.m, key_.k, key_.k, key_.n, name_of(key_.result), key_.alignment,
          cublasLtGetStatusString(status));
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  LLMTRAIN_CHECK(!algorithms.empty());
  return algorithms;
}

bool GemmPlan::accepts(const cublasLtMatmulAlgo_t& algorithm, std::int64_t workspace_bytes) const {
  cublasLtMatmulHeuristicResult_t check{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle_, of_->product, of_->first, of_->second, of_->result,
                                                        of_->result, &algorithm, &check);
  return status == CUBLAS_STATUS_SUCCESS && check.workspaceSize <= static_cast<std::size_t>(workspace_bytes);
}

cublasStatus_t GemmPlan::multiply(cudaStream_t stream, const GemmOperands& on,
                                  const cublasLtMatmulAlgo_t& algorithm) const {
  const float one = 1, beta = on.write == Write::accumulate ? 1 : 0;
  const double one64 = 1, beta64 = beta;
  const bool fp64 = key_.data == DType::fp64;
  of_->product.point_at(on);
  return cublasLtMatmul(handle_, of_->product, fp64 ? static_cast<const void*>(&one64) : &one, on.b.data, of_->first,
                        on.a.data, of_->second, fp64 ? static_cast<const void*>(&beta64) : &beta, on.d.data,
                        of_->result, on.d.data, of_->result, &algorithm, on.workspace.data,
                        static_cast<std::size_t>(on.workspace.bytes()), stream);
}

}  // namespace llmtrain
