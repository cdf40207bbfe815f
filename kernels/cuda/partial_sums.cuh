// SPDX-License-Identifier: Apache-2.0
/// The second half of sums over rows: partial sums of row blocks, added in a fixed order.
#pragma once

#include "cuda/loops.cuh"

namespace llmtrain {

/// For a kernel that has only its partial sums left to store: the one that adds them up can be set up from here on. It still
/// begins when all blocks have ended. Does nothing before sm_90.
__device__ __forceinline__ void let_sums_follow() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/// totals[i] [cols] (+)= the sum over b of partials[b, i], i being blockIdx.y. Each of the segments of blocks is added in
/// order, then the segments as warp_sum does, and the whole rounded once.
template <class G1, class G2, class S>
__global__ void __launch_bounds__(warp* warp)
    partial_sums_kernel(G1* first_total, G2* second_total, const S* partials, int blocks, int cols, bool accumulate) {
  constexpr int segments = warp;
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();  // waits for the kernel that stores the partial sums
#endif
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int first_column = static_cast<int>(blockIdx.x) * warp, c = first_column + x;
  const int begin = blocks * y / segments, end = blocks * (y + 1) / segments;
  S sum{0};
  if (c < cols) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * cols;
    const S* const column = partials + static_cast<std::int64_t>(blockIdx.y) * cols + c;
#pragma unroll 8
    for (int b = begin; b < end; ++b) sum += column[b * step];
  }
  __shared__ S sums[segments][warp + 1];
  sums[y][x] = sum;
  __syncthreads();
  sum = warp_sum(sums[x][y]);  // a warp a column
  const int column = first_column + y;
  if (x != 0 || column >= cols) return;
  const auto add_to = [&](auto& total) { store(total, accumulate ? load(total) + sum : sum); };
  if (blockIdx.y == 0) {
    add_to(first_total[column]);
  } else {
    add_to(second_total[column]);
  }
}

/// totals (one or two [cols]) (+)= the sums over blocks of partials [blocks, totals, cols].
template <class S>
void add_partial_sums(cudaStream_t stream, std::initializer_list<Tensor> totals, const S* partials, std::int64_t blocks,
                      Write write) {
  const Tensor &first = *totals.begin(), &second = *(totals.end() - 1);
  const auto cols = static_cast<int>(first.numel());
  if (cols == 0) return;
  const dim3 grid(static_cast<unsigned>((cols + warp - 1) / warp), static_cast<unsigned>(totals.size()));
  dispatch_stored<S>("gradients of a vector", first.dtype, [&]<class G1>(G1) {
    dispatch_stored<S>("gradients of a vector", second.dtype, [&]<class G2>(G2) {
      const auto kernel = partial_sums_kernel<G1, G2, S>;
      static const bool waits = runs_as_sm_90(kernel);
      cudaLaunchAttribute early{};
      early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      early.val.programmaticStreamSerializationAllowed = 1;
      cudaLaunchConfig_t config{};
      config.gridDim = grid;
      config.blockDim = dim3(warp, warp);
      config.stream = stream;
      config.attrs = &early;
      config.numAttrs = waits ? 1 : 0;
      check_cuda(cudaLaunchKernelEx(&config, kernel, first.ptr<G1>(), second.ptr<G2>(), partials,
                                    static_cast<int>(blocks), cols, write == Write::accumulate),
                 "cudaLaunchKernelEx");
    });
  });
}

}  // namespace llmtrain
