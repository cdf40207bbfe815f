// SPDX-License-Identifier: Apache-2.0
/// Descriptors, layouts and algorithms of cuBLASLt, one set a shape.
#include "cuda/gemm.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/median.hpp"

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
  explicit Descriptor(const GemmKey& key) {
    const bool fp64 = key.data == DType::fp64;
    check_cublas(cublasLtMatmulDescCreate(&descriptor_, fp64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                          fp64 ? CUDA_R_64F : CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, key.form == GemmForm::nt ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, key.form == GemmForm::tn ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(key));
    if (key.epilogue != Epilogue::none) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.ld_gelu);
  }
  ~Descriptor() { cublasLtMatmulDescDestroy(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator cublasLtMatmulDesc_t() const { return descriptor_; }
  void point_at(const Tensor& bias, const Tensor& gelu) const {
    if (bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data);
    if (gelu) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, gelu.data);
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

/// The transposed product D^T = op(B)^T op(A)^T: cuBLASLt's first operand is our second.
struct CudaGemm::Plan {
  explicit Plan(const GemmKey& key)
      : data(key.data),
        descriptor(key),
        first(key.data, key.form == GemmForm::nt ? key.n : key.k, key.form == GemmForm::nt ? key.k : key.n, key.ldb),
        second(key.data, key.form == GemmForm::tn ? key.k : key.m, key.form == GemmForm::tn ? key.m : key.k, key.lda),
        result(key.result, key.m, key.n, key.ldd) {}

  DType data;
  Descriptor descriptor;
  Layout first, second, result;
  cublasLtMatmulAlgo_t algorithm{};
};

namespace {

/// Products below this many FLOP take the first proposal: they are over before a choice would pay.
constexpr double tuned_flops = 1e9;
constexpr int proposal_count = 40;  // of cuBLASLt, in the order of its estimate
constexpr int finalists = 6;
// Products timed together, so that the GPU is as busy and as warm as in a step; one or more until they take so long.
constexpr int largest_batch = 4;
constexpr double batch_seconds = 2e-3;

bool wants_tuning(bool deterministic) {
  const char* setting = std::getenv("LLMTRAIN_TUNE_GEMM");
  return !deterministic && (setting == nullptr || std::strcmp(setting, "0") != 0);
}

std::string gpu_name() {
  int device = 0;
  cudaDeviceProp properties{};
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return properties.name;
}

/// Device memory for as long as a choice takes; null where there is none left.
class Borrowed {
 public:
  explicit Borrowed(std::size_t bytes) {
    if (cudaMalloc(&data_, bytes) == cudaSuccess) return;
    cudaGetLastError();
    data_ = nullptr;
  }
  ~Borrowed() { cudaFree(data_); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace

CudaGemm::CudaGemm(bool deterministic) : tunes_(wants_tuning(deterministic)), choices_(gpu_name()) {
  check_cublas(cublasLtCreate(&handle_), "cublasLtCreate");
  check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
  check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
}

CudaGemm::~CudaGemm() {
  cublasLtDestroy(handle_);
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
}

CudaGemm::Algorithms CudaGemm::proposals(const Plan& plan, const GemmKey& key, const Call& call, int count) const {
  const Preference preference(call.workspace.bytes(), key.alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(count));
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, plan.descriptor, plan.first, plan.second, plan.result, plan.result,
                                     preference, count, results.data(), &found);
  require(status == CUBLAS_STATUS_SUCCESS && found > 0, ExitCode::internal,
          "cuBLASLt has no algorithm for a {} product [{}, {}] x [{}, {}] into {} (aligned to {} bytes): {}",
          name_of(key.data), key.m, key.k, key.k, key.n, name_of(key.result), key.alignment,
          cublasLtGetStatusString(status));
  Algorithms algorithms;
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  LLMTRAIN_CHECK(!algorithms.empty());
  return algorithms;
}

cublasLtMatmulAlgo_t CudaGemm::choose(const Plan& plan, const GemmKey& key, const Call& call) {
  const double flops = 2.0 * static_cast<double>(key.m) * static_cast<double>(key.n) * static_cast<double>(key.k);
  if (!tunes_ || flops < tuned_flops) return proposals(plan, key, call, 1).front();
  if (const auto known = choices_.find(key)) {
    cublasLtMatmulHeuristicResult_t check{};
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle_, plan.descriptor, plan.first, plan.second,
                                                          plan.result, plan.result, &*known, &check);
    if (status == CUBLAS_STATUS_SUCCESS && check.workspaceSize <= static_cast<std::size_t>(call.workspace.bytes())) {
      return *known;
    }
  }
  const cublasLtMatmulAlgo_t best = fastest(plan, key, call, proposals(plan, key, call, proposal_count));
  choices_.add(key, best);
  return best;
}

/// A first round leaves the finalists, a longer one decides. Sums that are there already are kept: the results of timed
/// products then go to borrowed memory.
cublasLtMatmulAlgo_t CudaGemm::fastest(const Plan& plan, const GemmKey& key, const Call& call,
                                       Algorithms candidates) const {
  const bool keeps = call.write == Write::accumulate;
  const Borrowed borrowed(keeps ? static_cast<std::size_t>(key.m * key.ldd * size_of(key.result)) : 0);
  if (keeps && borrowed.data() == nullptr) return candidates.front();
  void* const result = keeps ? borrowed.data() : call.d.data;
  const double one = time(plan, call, candidates.front(), result, 1, 1);
  const int batch = one > 0 ? std::clamp(static_cast<int>(batch_seconds / one), 1, largest_batch) : 1;
  const auto keep_best = [&](std::size_t count, int runs) {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const double seconds = time(plan, call, candidates[i], result, batch, runs);
      if (seconds > 0) order.emplace_back(seconds, i);  // false for NaN
    }
    std::sort(order.begin(), order.end());
    Algorithms best;
    for (std::size_t i = 0; i < std::min(count, order.size()); ++i) best.push_back(candidates[order[i].second]);
    if (!best.empty()) candidates = std::move(best);
  };
  keep_best(finalists, 1);
  keep_best(1, 5);
  return candidates.front();
}

double CudaGemm::time(const Plan& plan, const Call& call, const cublasLtMatmulAlgo_t& algorithm, void* result,
                      int batch, int runs) const {
  std::vector<double> times;
  for (int run = 0; run <= runs; ++run) {  // the first is warm-up
    check_cuda(cudaEventRecord(begin_, call.stream), "cudaEventRecord");
    for (int i = 0; i < (run == 0 ? 1 : batch); ++i) {
      if (multiply(plan, call, algorithm, result, Write::overwrite) != CUBLAS_STATUS_SUCCESS) {
        return std::numeric_limits<double>::quiet_NaN();
      }
    }
    check_cuda(cudaEventRecord(end_, call.stream), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end_), "timing of matrix products");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    if (run > 0) times.push_back(milliseconds);
  }
  return median(std::move(times)) * 1e-3 / batch;
}

cublasStatus_t CudaGemm::multiply(const Plan& plan, const Call& call, const cublasLtMatmulAlgo_t& algorithm,
                                  void* result, Write write) const {
  const float one = 1, beta = write == Write::accumulate ? 1 : 0;
  const double one64 = 1, beta64 = beta;
  const bool fp64 = plan.data == DType::fp64;
  plan.descriptor.point_at(call.bias, call.gelu);
  return cublasLtMatmul(handle_, plan.descriptor, fp64 ? static_cast<const void*>(&one64) : &one, call.b.data,
                        plan.first, call.a.data, plan.second, fp64 ? static_cast<const void*>(&beta64) : &beta, result,
                        plan.result, result, plan.result, &algorithm, call.workspace.data,
                        static_cast<std::size_t>(call.workspace.bytes()), call.stream);
}

const CudaGemm::Plan& CudaGemm::plan_of(const GemmKey& key, const Call& call) {
  std::unique_ptr<Plan>& plan = plans_[key];
  if (plan == nullptr) [[unlikely]] {
    auto fresh = std::make_unique<Plan>(key);
    fresh->descriptor.point_at(call.bias, call.gelu);  // their alignment counts too
    fresh->algorithm = choose(*fresh, key, call);
    plan = std::move(fresh);
  }
  return *plan;
}

void CudaGemm::run(const Call& call) {
  const Tensor &d = call.d, &a = call.a, &b = call.b;
  const GemmKey key{call.form,
                    a.dtype,
                    d.dtype,
                    static_cast<bool>(call.bias),
                    call.epilogue,
                    d.rows(),
                    d.cols(),
                    call.form == GemmForm::tn ? a.rows() : a.cols(),
                    a.leading,
                    b.leading,
                    d.leading,
                    call.gelu ? call.gelu.leading : 0,
                    std::min({alignment_of(a), alignment_of(b), alignment_of(d)})};
  const Plan& plan = plan_of(key, call);
  check_cublas(multiply(plan, call, plan.algorithm, d.data, call.write), "cublasLtMatmul");
}

}  // namespace llmtrain
