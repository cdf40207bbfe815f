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

constexpr int proposal_count = 40;  // cuBLASLt 13 has 8
/// Products timed together, so that the GPU is as busy as in a step: so long, and at most so many.
constexpr double burst_seconds = 4e-3;
constexpr int largest_burst = 16;
constexpr std::size_t finalists = 6;
constexpr int rounds = 5;
/// The clock follows the power within tens of milliseconds.
constexpr double settling_seconds = 50e-3, settled_seconds = 40e-3;
/// An algorithm this many times slower than another in a burst, at whatever clock the one before left, cannot win.
constexpr double hopeless = 1.5;

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(GemmChoice::algorithm));

/// Goes of `one` seconds in about `seconds`, at least one.
int count_in(double seconds, double one, int most = 1 << 20) {
  return one > 0 ? std::clamp(static_cast<int>(std::min(seconds / one, 1e6)), 1, most) : 1;
}

GemmChoice choice_of(const cublasLtMatmulAlgo_t& algorithm, double seconds) {
  GemmChoice choice{.algorithm = {}, .seconds = seconds};
  std::ranges::copy(algorithm.data, choice.algorithm.begin());
  return choice;
}

std::int64_t operand_bytes(DType type, std::int64_t rows, std::int64_t leading) {
  return (rows * leading * size_of(type) + 255) / 256 * 256;
}

/// What random numbers of this type are made in.
DType made_in(DType type) { return is_fp8(type) ? DType::bf16 : type; }

std::int64_t largest_operand(const GemmKey& key) {
  return std::max({operand_bytes(key.result, key.m, key.ldd),
                   operand_bytes(made_in(key.data), key.form == GemmForm::tn ? key.k : key.m, key.lda),
                   operand_bytes(made_in(key.data_b), key.form == GemmForm::nt ? key.n : key.k, key.ldb),
                   operand_bytes(key.data, key.m, key.ld_gelu)});
}

/// Operands one after another. Where memory ends, they go on at its end, over the one before: times are right, numbers
/// nobody wants.
class Placing {
 public:
  explicit Placing(Tensor memory) : memory_(memory) {}
  Tensor take(DType type, std::int64_t rows, std::int64_t leading) {
    const std::int64_t bytes = operand_bytes(type, rows, leading);
    LLMTRAIN_CHECK(bytes <= memory_.bytes());
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
  const auto random = [&](DType type, std::int64_t rows, std::int64_t leading) {
    const Tensor made = placing.take(made_in(type), rows, leading);
    kernels_.init_normal(s, made, {1, 1}, {0, 0, leading}, 1);
    if (made.dtype == type) return made;
    Tensor rounded = placing.take(type, rows, leading);
    const Tensor scale = placing.take(DType::fp32, 1, 1);
    kernels_.quantize(s, rounded, {}, scale, made);
    rounded.scale = scale.ptr<float>();
    return rounded;
  };
  GemmOperands on;
  on.d = random(key.result, key.m, key.ldd);
  on.a = random(key.data, a_transposed ? key.k : key.m, key.lda);
  on.b = random(key.data_b, b_transposed ? key.n : key.k, key.ldb);
  if (key.bias) on.bias = random(key.result, 1, key.n);
  if (key.ld_gelu > 0) on.gelu = random(key.data, key.m, key.ld_gelu);
  on.workspace = kernels_.library_workspace();
  // Weight gradients are added up over the micro-batches.
  const bool gradient = key.form == GemmForm::tn || (is_fp8(key.data) && key.result == DType::fp32);
  on.write = gradient && !key.bias ? Write::accumulate : Write::overwrite;
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

std::vector<CudaGemmTuner::Candidate> CudaGemmTuner::candidates(const GemmPlan& plan, cudaStream_t stream,
                                                                const GemmKey& key, const GemmOperands& on) const {
  std::vector<Candidate> found;
  int burst = 0;
  for (const cublasLtMatmulAlgo_t& algorithm : plan.proposals(on, proposal_count, gemm_.deterministic())) {
    const double first = time(plan, stream, on, algorithm, 1);  // with the loading of its code
    if (!(first > 0)) continue;                                 // also for NaN
    if (burst == 0) burst = count_in(burst_seconds, time(plan, stream, on, algorithm, 1), largest_burst);
    found.push_back({algorithm, time(plan, stream, on, algorithm, (burst + 1) / 2)});
  }
  require(!found.empty(), ExitCode::internal,
          "cuBLASLt: each of its algorithms for a {} product [{}, {}] x [{}, {}] fails", name_of(key.data), key.m,
          key.k, key.k, key.n);
  std::ranges::stable_sort(found, {}, &Candidate::seconds);
  return found;
}

GemmChoice CudaGemmTuner::fastest(Stream s, const GemmKey& key, Tensor memory, Timing timing) {
  const GemmPlan plan(gemm_.handle(), key);
  if (largest_operand(key) > memory.bytes()) {  // nowhere to time it
    GemmOperands none;
    none.workspace = kernels_.library_workspace();
    return choice_of(plan.proposals(none, 1, gemm_.deterministic()).front(), 0);
  }
  const GemmOperands on = place(s, key, memory);
  const cudaStream_t stream = streams_[s];
  std::vector<Candidate> all = candidates(plan, stream, key, on);
  const double best = all.front().seconds;
  if (timing == Timing::settled) {
    std::erase_if(all, [best](const Candidate& c) { return c.seconds > hopeless * best; });
    for (Candidate& candidate : all) {
      const int settling = count_in(settling_seconds, candidate.seconds), settled = count_in(settled_seconds, best);
      time(plan, stream, on, candidate.algorithm, settling);
      candidate.seconds = time(plan, stream, on, candidate.algorithm, settled);
    }
  } else {
    all.resize(std::min(finalists, all.size()));
    const int burst = count_in(burst_seconds, best, largest_burst);
    std::vector<std::vector<double>> seconds(all.size());
    for (int round = 0; round < rounds; ++round) {  // in turns: clocks drift
      for (std::size_t i = 0; i < all.size(); ++i) {
        seconds[i].push_back(time(plan, stream, on, all[i].algorithm, burst));
      }
    }
    for (std::size_t i = 0; i < all.size(); ++i) all[i].seconds = median(std::move(seconds[i]));
  }
  const Candidate& winner = *std::ranges::min_element(all, {}, &Candidate::seconds);
  return choice_of(winner.algorithm, winner.seconds);
}

}  // namespace llmtrain
