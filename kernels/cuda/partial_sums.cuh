// SPDX-License-Identifier: Apache-2.0
/// The second half of sums over rows: partial sums of row blocks, added in a fixed order.
#pragma once

#include "cuda/loops.cuh"

namespace llmtrain {

/// totals[i] [cols] (+)= the sum over b of partials[b, i], i being blockIdx.y. Each of the segments of blocks is added in
/// order, then the segments in order, and the whole rounded once.
template <class G, class S>
__global__ void __launch_bounds__(1024)
    partial_sums_kernel(G* first_total, G* second_total, const S* partials, int blocks, int cols, bool accumulate) {
  constexpr int segments = 1024 / warp;
  const int c = static_cast<int>(blockIdx.x) * warp + static_cast<int>(threadIdx.x);
  const int begin = blocks * static_cast<int>(threadIdx.y) / segments,
            end = blocks * (static_cast<int>(threadIdx.y) + 1) / segments;
  S sum{0};
  if (c < cols) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * cols;
    const S* const column = partials + static_cast<std::int64_t>(blockIdx.y) * cols + c;
#pragma unroll 8
    for (int b = begin; b < end; ++b) sum += column[b * step];
  }
  __shared__ S sums[segments][warp];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= cols) return;
#pragma unroll
  for (int segment = 1; segment < segments; ++segment) sum += sums[segment][threadIdx.x];
  G& total = (blockIdx.y == 0 ? first_total : second_total)[c];
  store(total, accumulate ? load(total) + sum : sum);
}

/// totals (one or two [cols], of one dtype) (+)= the sums over blocks of partials [blocks, totals, cols].
template <class S>
void add_partial_sums(cudaStream_t stream, std::initializer_list<Tensor> totals, const S* partials, std::int64_t blocks,
                      Write write) {
  const Tensor &first = *totals.begin(), &second = *(totals.end() - 1);
  const auto cols = static_cast<int>(first.numel());
  if (cols == 0) return;
  dispatch_stored<S>("gradients of a vector", first.dtype, [&]<class G>(G) {
    const dim3 grid(static_cast<unsigned>((cols + warp - 1) / warp), static_cast<unsigned>(totals.size()));
    partial_sums_kernel<<<grid, dim3(warp, 1024 / warp), 0, stream>>>(
        first.ptr<G>(), second.ptr<G>(), partials, static_cast<int>(blocks), cols, write == Write::accumulate);
  });
  check_launch("partial sums");
}

}  // namespace llmtrain
