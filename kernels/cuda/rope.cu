// SPDX-License-Identifier: Apache-2.0
/// Rotary position embedding in place, on the GPU.
#include <cmath>

#include "cuda/cuda_kernels.hpp"
#include "cuda/loops.cuh"

namespace llmtrain {

namespace {

/// Rotates pairs of dimensions [c, c + width) and half a head later, of every head of token r. Threads y share the heads
/// of a token, so that a rotation is read once for several heads.
template <class T, int width>
__global__ void __launch_bounds__(block_threads)
    rotate(Matrix<T> x, const StatsType<T>* table, const std::int32_t* positions, std::int64_t tokens, int heads,
           int half, StatsType<T> direction) {
  using S = StatsType<T>;
  const int tokens_a_block = static_cast<int>(blockDim.z);
  for (std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * tokens_a_block + threadIdx.z; t < tokens;
       t += static_cast<std::int64_t>(gridDim.x) * tokens_a_block) {
    const S* const row = table + static_cast<std::int64_t>(positions[t]) * 2 * half;
    for (int c = static_cast<int>(threadIdx.x) * width; c < half; c += static_cast<int>(blockDim.x) * width) {
      Values<S, width> cosine, sine;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const auto rotation = load_pack<2>(row + 2 * (c + i));
        cosine.at[i] = rotation.at[0];
        sine.at[i] = direction * rotation.at[1];
      }
      for (int h = static_cast<int>(threadIdx.y); h < heads; h += static_cast<int>(blockDim.y)) {
        const std::int64_t low = static_cast<std::int64_t>(h) * 2 * half + c;
        auto a = x.template values<width>(t, low), b = x.template values<width>(t, low + half);
#pragma unroll
        for (int i = 0; i < width; ++i) {
          const S p = a.at[i], q = b.at[i];
          a.at[i] = std::fma(p, cosine.at[i], -(q * sine.at[i]));
          b.at[i] = std::fma(q, cosine.at[i], p * sine.at[i]);
        }
        x.put(t, low, a);
        x.put(t, low + half, b);
      }
    }
  }
}

unsigned power_of_two_up_to(std::int64_t n, unsigned limit) {
  unsigned power = 1;
  while (power < limit && power < n) power *= 2;
  return power;
}

}  // namespace

void CudaKernels::do_rope(Stream s, Tensor x, Tensor table, Tensor positions, Rotation direction) {
  const std::int64_t tokens = x.rows(), heads = x.extent[1], half = x.extent[2] / 2;
  if (x.numel() == 0) return;
  dispatch("rope", x.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    constexpr int full = full_width<T>;
    const S sign = direction == Rotation::forward ? S{1} : S{-1};
    const bool packed = is_packed({x}, full) && half % full == 0;
    const unsigned across = power_of_two_up_to(packed ? half / full : half, 32);
    const unsigned by_head = std::min(power_of_two_up_to(heads, 8), block_threads / across);
    const dim3 threads(across, by_head, std::min(64u, block_threads / across / by_head));
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>((tokens + threads.z - 1) / threads.z, 1 << 30));
    const auto run = packed ? rotate<T, full> : rotate<T, 1>;
    run<<<blocks, threads, 0, streams_[s]>>>(Matrix<T>(x), table.ptr<S>(), positions.ptr<std::int32_t>(), tokens,
                                             static_cast<int>(heads), static_cast<int>(half), sign);
    check_launch("rope");
  });
}

}  // namespace llmtrain
