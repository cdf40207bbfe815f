// SPDX-License-Identifier: Apache-2.0
/// The norm of the gradient, the scalars of a step and the AdamW update, on the GPU.
#include <cmath>
#include <new>

#include "common/adamw.hpp"
#include "common/step_scalars.hpp"
#include "cuda/cuda_kernels.hpp"
#include "cuda/loops.cuh"

namespace llmtrain {

namespace {

constexpr int sum_threads = 512;

/// partials[block] = sum of squares of its share, in fp64; shares and order depend on n and the grid alone.
template <class T, int width>
__global__ void __launch_bounds__(sum_threads) squares_of_blocks(double* partials, const T* x, std::int64_t n) {
  double sum = 0;
  const auto add = [&sum](const Pack<T, width>& pack) {
    const auto values = widen(pack);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      const auto value = static_cast<double>(values.at[k]);
      sum = std::fma(value, value, sum);
    }
  };
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * sum_threads * width;
  std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * sum_threads + threadIdx.x) * width;
  for (; i + (packs_ahead - 1) * step < n; i += packs_ahead * step) {
    Pack<T, width> packs[packs_ahead];
#pragma unroll
    for (int p = 0; p < packs_ahead; ++p) packs[p] = load_pack<width>(x + i + p * step);
#pragma unroll
    for (int p = 0; p < packs_ahead; ++p) add(packs[p]);
  }
  for (; i < n; i += step) add(load_pack<width>(x + i));
  __shared__ double shared[sum_threads / warp];
  sum = group_sum<sum_threads>(sum, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(sum_threads) add_squares(double* totals, const double* partials, int count) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += sum_threads) sum += partials[i];
  __shared__ double shared[sum_threads / warp];
  sum = group_sum<sum_threads>(sum, shared);
  if (threadIdx.x != 0) return;
  totals[2] += sum;
  if (!isfinite(sum)) totals[3] = 1;
}

__global__ void derive_scalars(StepScalars* scalars, const StepTotals* totals, StepFactors factors) {
  *scalars = step_scalars_of(*totals, factors);
}

/// The arrays of one update; `weights` may be null.
template <class S, class M, class W, class G>
struct AdamWArrays {
  S* master;
  M *m, *v;
  W* weights;
  const G* gradient;
  std::int64_t n;
};

template <int width, class S, class M, class W, class G>
__global__ void __launch_bounds__(block_threads)
    adamw_kernel(const AdamWArrays<S, M, W, G> a, const double* scalars, AdamWOptions options) {
  using Factors = AdamWFactors<S>;
  __shared__ alignas(Factors) unsigned char shared[sizeof(Factors)];
  const StepScalars s{scalars[0], scalars[1], scalars[2], scalars[3], scalars[4], scalars[5], scalars[6], scalars[7]};
  if (s.apply == 0) return;
  if (threadIdx.x == 0) new (shared) Factors(s, options);  // fp64 divisions, once a block
  __syncthreads();
  const Factors factors = *reinterpret_cast<const Factors*>(shared);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * block_threads * width;
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x) * width; i < a.n;
       i += step) {
    auto p = widen(load_pack<width>(a.master + i));
    auto m = widen(load_pack<width>(a.m + i));
    auto v = widen(load_pack<width>(a.v + i));
    const auto g = widen(load_pack<width>(a.gradient + i));
#pragma unroll
    for (int k = 0; k < width; ++k) {
      S m1 = m.at[k], v1 = v.at[k];
      adamw_update(factors, static_cast<S>(g.at[k]), p.at[k], m1, v1);
      m.at[k] = m1;
      v.at[k] = v1;
    }
    store_pack(a.master + i, narrow<S>(p));
    store_pack(a.m + i, narrow<M>(m));
    store_pack(a.v + i, narrow<M>(v));
    if (a.weights != nullptr) store_pack(a.weights + i, narrow<W>(p));
  }
}

/// One access of 4 elements is 16 bytes of fp32; the narrow arrays beside it are then read 8 bytes at a time.
constexpr int adamw_width = 4;

}  // namespace

void CudaKernels::do_sum_squares(Stream s, Tensor totals, Tensor x) {
  const std::int64_t n = x.numel();
  if (n == 0) return;
  dispatch("sum_squares", x.dtype, [&]<class T>(T) {
    const bool packed = is_packed({x.reshaped({1, n})}, full_width<T>);
    const std::int64_t a_block = static_cast<std::int64_t>(sum_threads) * full_width<T> * packs_ahead;
    const int blocks = static_cast<int>(std::min<std::int64_t>((n + a_block - 1) / a_block, 1024));
    auto* const partials = static_cast<double*>(partial_sums(blocks * static_cast<std::int64_t>(sizeof(double))));
    const auto run = packed ? squares_of_blocks<T, full_width<T>> : squares_of_blocks<T, 1>;
    run<<<static_cast<unsigned>(blocks), sum_threads, 0, streams_[s]>>>(partials, x.ptr<T>(), n);
    add_squares<<<1, sum_threads, 0, streams_[s]>>>(totals.ptr<double>(), partials, blocks);
    check_launch("sum_squares");
  });
}

void CudaKernels::do_step_scalars(Stream s, Tensor scalars, Tensor totals, const StepInputs& inputs) {
  derive_scalars<<<1, 1, 0, streams_[s]>>>(static_cast<StepScalars*>(scalars.data),
                                           static_cast<const StepTotals*>(totals.data), StepFactors(inputs));
  check_launch("step_scalars");
}

void CudaKernels::do_adamw(Stream s, Tensor master, Tensor m, Tensor v, Tensor weights, Tensor gradient, Tensor scalars,
                           const AdamWOptions& options) {
  const std::int64_t n = master.numel();
  if (n == 0) return;
  const auto row = [n](const Tensor& t) { return t ? t.reshaped({1, n}) : t; };
  const bool packed = is_packed({row(master), row(m), row(v), row(weights), row(gradient)}, adamw_width);
  dispatch_stats("adamw", master.dtype, [&]<class S>(S) {
    dispatch_stored<S>("adamw's moments", m.dtype, [&]<class M>(M) {
      dispatch("adamw's weights", weights ? weights.dtype : master.dtype, [&]<class W>(W) {
        dispatch_stored<S>("adamw's gradient", gradient.dtype, [&]<class G>(G) {
          const AdamWArrays<S, M, W, G> arrays{
              master.ptr<S>(), m.ptr<M>(), v.ptr<M>(), weights ? weights.ptr<W>() : nullptr, gradient.ptr<G>(), n};
          const std::int64_t a_block = block_threads * (packed ? adamw_width : 1);
          const auto blocks = static_cast<unsigned>(std::min<std::int64_t>((n + a_block - 1) / a_block, 132 * 8 * 4));
          const auto run = packed ? adamw_kernel<adamw_width, S, M, W, G> : adamw_kernel<1, S, M, W, G>;
          run<<<blocks, block_threads, 0, streams_[s]>>>(arrays, scalars.ptr<double>(), options);
          check_launch("adamw");
        });
      });
    });
  });
}

}  // namespace llmtrain
