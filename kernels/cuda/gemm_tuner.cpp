// SPDX-License-Identifier: Apache-2.0
/// A first look at all proposals, then rounds over the best.
#include "cuda/gemm_tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cuda/cuda_kernels.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/median.hpp"

namespace llmtrain {

namespace {

constexpr int proposal_count = 40;
constexpr std::size_t finalists = 6;
constexpr int rounds = 5;
/// Products timed together, so that the GPU is as busy and as warm as in a step: so long, and at most so many.
constexpr double batch_seconds = 4e-3;
constexpr int largest_batch = 16;

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(GemmChoice::algorithm));

/// Operands one after another. Where memory ends, they go on at its end, over the one before: times are right, numbers
/// nobody wants.
class Placing {
 public:
  explicit Placing(Tensor memory) : memory_(memory) {}
  Tensor take(DType type, std::int64_t rows, std::int64_t leading) {
    const std::int64_t bytes = (rows * leading * size_of(type) + 255) / 256 * 256;
    require(bytes <= memory_.bytes(), ExitCode::internal,
            "internal error: {} bytes to time a matrix product in, and an operand of {}", memory_.bytes(), bytes);
    const std::int64_t begin = std::min(used_, (memory_.bytes() - bytes) / 256 * 256);
    used_ = begin + bytes;
    return Tensor::dense(static_cast<char*>(memory_.data) + begin, type, {rows, leading});
  }

 private:
  Tensor memory_;
  std::int64_t used_ = 0;
};

}  // namespace

cublasLtMatmulAlgo_t cublas_algorithm(const GemmChoice& choice) {
  cublasLtMatmulAlgo_t algorithm{};
  std::ranges::copy(choice.algorithm, std::begin(algorithm.data));
  return algorithm;
}

CudaGemmTuner::CudaGemmTuner(CudaKernels& kernels, CudaGemm& gemm, const CudaStreams& streams)
    : kernels_(kernels), gemm_(gemm), streams_(streams) {
  check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
  check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
}

CudaGemmTuner::~CudaGemmTuner() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
}

std::string CudaGemmTuner::identity() const {
  int device = 0;
  cudaDeviceProp properties{};
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return fmt::format("{}, cuBLASLt {}{}", properties.name, cublasLtGetVersion(),
                     gemm_.deterministic() ? ", repeatable" : "");
}

bool CudaGemmTuner::accepts(const GemmKey& key, const GemmChoice& choice) {
  return GemmPlan(gemm_.handle(), key).accepts(cublas_algorithm(choice), kernels_.library_workspace().bytes());
}

GemmOperands CudaGemmTuner::place(Stream s, const GemmKey& key, Tensor memory) const {
  Placing placing(memory);
  const bool a_transposed = key.form == GemmForm::tn, b_transposed = key.form == GemmForm::nt;
  GemmOperands on;
  on.d = placing.take(key.result, key.m, key.ldd);
  on.a = placing.take(key.data, a_transposed ? key.k : key.m, key.lda);
  on.b = placing.take(key.data, b_transposed ? key.n : key.k, key.ldb);
  if (key.bias) on.bias = placing.take(key.result, 1, key.n);
  if (key.ld_gelu > 0) on.gelu = placing.take(key.data, key.m, key.ld_gelu);
  for (const Tensor* t : {&on.d, &on.a, &on.b, &on.bias, &on.gelu}) {
    if (*t) kernels_.init_normal(s, *t, {1, 1}, {0, 0, t->cols()}, 1);
  }
  on.workspace = kernels_.library_workspace();
  // Weight gradients are added up over the micro-batches.
  on.write = key.form == GemmForm::tn && !key.bias ? Write::accumulate : Write::overwrite;
  return on;
}

double CudaGemmTuner::time(const GemmPlan& plan, cudaStream_t stream, const GemmOperands& on,
                           const cublasLtMatmulAlgo_t& algorithm, int count) const {
  check_cuda(cudaEventRecord(begin_, stream), "cudaEventRecord");
  for (int i = 0; i < count; ++i) {
    if (plan.multiply(stream, on, algorithm) != CUBLAS_STATUS_SUCCESS) return std::numeric_limits<double>::quiet_NaN();
  }
  check_cuda(cudaEventRecord(end_, stream), "cudaEventRecord");
  check_cuda(cudaEventSynchronize(end_), "timing of matrix products");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
  return milliseconds * 1e-3 / count;
}

GemmChoice CudaGemmTuner::fastest(Stream s, const GemmKey& key, Tensor memory) {
  const GemmOperands on = place(s, key, memory);
  const GemmPlan plan(gemm_.handle(), key);
  const cudaStream_t stream = streams_[s];
  std::vector<Candidate> candidates;
  int batch = 0;
  for (const cublasLtMatmulAlgo_t& algorithm : plan.proposals(on, proposal_count, gemm_.deterministic())) {
    const double first = time(plan, stream, on, algorithm, 1);  // with the loading of its code
    if (!(first > 0)) continue;                                 // also for NaN
    if (batch == 0) {
      const double one = time(plan, stream, on, algorithm, 1);
      batch = std::clamp(static_cast<int>(batch_seconds / one), 1, largest_batch);
    }
    candidates.push_back({algorithm, {time(plan, stream, on, algorithm, (batch + 1) / 2)}});
  }
  require(!candidates.empty(), ExitCode::internal,
          "cuBLASLt: each of its algorithms for a {} product [{}, {}] x [{}, {}] fails", name_of(key.data), key.m,
          key.k, key.k, key.n);
  const auto by_time = [](const Candidate& x, const Candidate& y) { return median(x.seconds) < median(y.seconds); };
  std::ranges::stable_sort(candidates, by_time);
  candidates.resize(std::min(finalists, candidates.size()));
  for (Candidate& candidate : candidates) candidate.seconds.clear();
  for (int round = 0; round < rounds; ++round) {  // in turns: clocks drift
    for (Candidate& candidate : candidates) {
      candidate.seconds.push_back(time(plan, stream, on, candidate.algorithm, batch));
    }
  }
  const Candidate& winner = *std::ranges::min_element(candidates, by_time);
  GemmChoice choice{.algorithm = {}, .seconds = median(winner.seconds)};
  std::ranges::copy(winner.algorithm.data, choice.algorithm.begin());
  return choice;
}

}  // namespace llmtrain
