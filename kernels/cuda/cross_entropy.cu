// SPDX-License-Identifier: Apache-2.0
/// Softmax cross-entropy over the vocabulary rows of one rank, on the GPU.
#include <cmath>

#include "cuda/cross_entropy.cuh"
#include "cuda/cuda_kernels.hpp"

namespace llmtrain {

namespace {

template <class T>
struct StatsCall {
  Matrix<StatsType<T>> stats;  // [3, tokens]
  Matrix<T> logits;
  const std::int32_t* targets;
  VocabRange vocab;
};

template <class T, int width>
__global__ void __launch_bounds__(row_threads) stats_of_row(const StatsCall<T> call) {
  using S = StatsType<T>;
  const std::int64_t t = blockIdx.x;
  SoftmaxSums<S> sums;
  constexpr int step = row_threads * width;
  const std::int64_t packed = call.vocab.valid / width * width;
  std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * width;
  for (; c + (packs_ahead - 1) * step < packed; c += packs_ahead * step) {
    Pack<T, width> packs[packs_ahead];
#pragma unroll
    for (int p = 0; p < packs_ahead; ++p) packs[p] = load_pack<width>(call.logits.at(t, c + p * step));
#pragma unroll
    for (int p = 0; p < packs_ahead; ++p) sums.add(widen(packs[p]));
  }
  for (; c < packed; c += step) sums.add(call.logits.template values<width>(t, c));
  if (packed + threadIdx.x < call.vocab.valid) sums.add(call.logits.template values<1>(t, packed + threadIdx.x));
  sums.add_lanes();
  __shared__ S maxima[row_warps], sums_below[row_warps];
  if (threadIdx.x % warp == 0) {
    maxima[threadIdx.x / warp] = sums.maximum;
    sums_below[threadIdx.x / warp] = sums.sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < row_warps; ++w) sums.add({maxima[w], sums_below[w]});
  const int target = column_of(call.targets[t], call.vocab);
  *call.stats.at(0, t) = sums.highest();
  *call.stats.at(1, t) = sums.sum;
  *call.stats.at(2, t) = target >= 0 ? load(*call.logits.at(t, target)) : S{0};
}

template <class S>
__global__ void __launch_bounds__(block_threads)
    merge_parts(Matrix<S> stats, const S* parts, std::int64_t ranks, std::int64_t tokens) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (t >= tokens) return;
  const auto at = [&](std::int64_t rank, int row) { return parts[(rank * 3 + row) * tokens + t]; };
  S maximum = at(0, 0), sum{0}, target{0};
  for (std::int64_t r = 1; r < ranks; ++r) maximum = at(r, 0) > maximum ? at(r, 0) : maximum;
  for (std::int64_t r = 0; r < ranks; ++r) {
    sum += at(r, 1) * fast_exp(at(r, 0) - maximum);  // a rank without true rows: 0 exp(-infinity)
    target += at(r, 2);
  }
  *stats.at(0, t) = maximum;
  *stats.at(1, t) = sum;
  *stats.at(2, t) = target;
}

/// One block: the terms of all tokens, each thread's in order, then those of the threads.
template <class S>
__global__ void __launch_bounds__(1024)
    loss_of_tokens(double* totals, Matrix<S> stats, const float* weights, std::int64_t tokens) {
  double loss = 0, count = 0;
  for (std::int64_t t = threadIdx.x; t < tokens; t += 1024) {
    const double log_sum = std::log(static_cast<double>(*stats.at(1, t))) + static_cast<double>(*stats.at(0, t));
    loss = std::fma(static_cast<double>(weights[t]), log_sum - static_cast<double>(*stats.at(2, t)), loss);
    count += static_cast<double>(weights[t]);
  }
  __shared__ double shared[1024 / warp];
  loss = group_sum<1024>(loss, shared);
  count = group_sum<1024>(count, shared);
  if (threadIdx.x != 0) return;
  totals[0] += loss;
  totals[1] += count;
}

template <class T, int width>
__global__ void __launch_bounds__(row_threads) gradient_of_row(const GradientCall<T> call) {
  using S = StatsType<T>;
  const std::int64_t t = blockIdx.x;
  const RowGradient<S> gradient(call, t, *call.stats.at(0, t), *call.stats.at(1, t));
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * width; c < call.cols; c += row_threads * width) {
    auto x = call.logits.template values<width>(t, c);
    gradient.apply(x, static_cast<int>(c));
    call.logits.put(t, c, x);
  }
}

}  // namespace

void CudaKernels::do_cross_entropy_stats(Stream s, Tensor stats, Tensor logits, Tensor targets, VocabRange vocab) {
  if (logits.rows() == 0) return;
  dispatch("cross_entropy_stats", logits.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    const StatsCall<T> call{Matrix<S>(stats), Matrix<T>(logits), targets.ptr<std::int32_t>(), vocab};
    const auto run = is_packed({logits}, full_width<T>) ? stats_of_row<T, full_width<T>> : stats_of_row<T, 1>;
    run<<<static_cast<unsigned>(logits.rows()), row_threads, 0, streams_[s]>>>(call);
    check_launch("cross_entropy_stats");
  });
}

void CudaKernels::do_cross_entropy_merge(Stream s, Tensor stats, Tensor parts) {
  const std::int64_t tokens = stats.cols();
  if (tokens == 0) return;
  dispatch_stats("cross_entropy_merge", stats.dtype, [&]<class S>(S) {
    const auto blocks = static_cast<unsigned>((tokens + block_threads - 1) / block_threads);
    merge_parts<<<blocks, block_threads, 0, streams_[s]>>>(Matrix<S>(stats), parts.ptr<S>(), parts.rows(), tokens);
    check_launch("cross_entropy_merge");
  });
}

void CudaKernels::do_cross_entropy_loss(Stream s, Tensor totals, Tensor stats, Tensor weights) {
  dispatch_stats("cross_entropy_loss", stats.dtype, [&]<class S>(S) {
    loss_of_tokens<<<1, 1024, 0, streams_[s]>>>(totals.ptr<double>(), Matrix<S>(stats), weights.ptr<float>(),
                                                stats.cols());
    check_launch("cross_entropy_loss");
  });
}

void CudaKernels::do_cross_entropy_gradient(Stream s, Tensor logits, Tensor stats, Tensor targets, Tensor weights,
                                            VocabRange vocab) {
  if (logits.rows() == 0) return;
  dispatch("cross_entropy_gradient", logits.dtype, [&]<class T>(T) {
    const auto call = gradient_call<T>(logits, stats, targets, weights, vocab);
    const auto run = is_packed({logits}, full_width<T>) ? gradient_of_row<T, full_width<T>> : gradient_of_row<T, 1>;
    run<<<static_cast<unsigned>(logits.rows()), row_threads, 0, streams_[s]>>>(call);
    check_launch("cross_entropy_gradient");
  });
}

}  // namespace llmtrain
