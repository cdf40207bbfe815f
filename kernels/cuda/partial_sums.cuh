// SPDX-License-Identifier: Apache-2.0
/// The second half of sums over rows: partial sums of row blocks, added in a fixed order.
#pragma once

#include "cuda/loops.cuh"

namespace llmtrain {

/// total [cols] (+)= the sum of `blocks` partial sums, block b at partials + b * step. Each of the segments of blocks is
/// added in order, then the segments in order, and the whole rounded once.
template <class G, class S>
__global__ void __launch_bounds__(block_threads)
    partial_sums_kernel(G* total, const S* partials, std::int64_t step, std::int64_t blocks, std::int64_t cols,
                        bool accumulate) {
  constexpr int segments = block_threads / warp;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * warp + threadIdx.x;
  const std::int64_t begin = blocks * threadIdx.y / segments, end = blocks * (threadIdx.y + 1) / segments;
  S sum{0};
  if (c < cols) {
#pragma unroll 8
    for (std::int64_t b = begin; b < end; ++b) sum += partials[b * step + c];
  }
  __shared__ S sums[segments][warp];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= cols) return;
  for (int segment = 1; segment < segments; ++segment) sum += sums[segment][threadIdx.x];
  store(total[c], accumulate ? load(total[c]) + sum : sum);
}

template <class S>
void add_partial_sums(cudaStream_t stream, const Tensor& total, const S* partials, std::int64_t step,
                      std::int64_t blocks, Write write) {
  const std::int64_t cols = total.numel();
  if (cols == 0) return;
  dispatch_stored<S>("gradients of a vector", total.dtype, [&]<class G>(G) {
    const auto grid = static_cast<unsigned>((cols + warp - 1) / warp);
    partial_sums_kernel<<<grid, dim3(warp, block_threads / warp), 0, stream>>>(total.ptr<G>(), partials, step, blocks,
                                                                               cols, write == Write::accumulate);
  });
  check_launch("partial sums");
}

}  // namespace llmtrain
