// SPDX-License-Identifier: Apache-2.0
/// fp8 copies of a matrix on the GPU: one pass for its largest element, one that rounds and turns tiles over.
#include <cuda_fp8.h>

#include "common/fp8_scale.hpp"
#include "cuda/cuda_kernels.hpp"
#include "cuda/loops.cuh"

namespace llmtrain {

namespace {

using Pack16 = uint4;  // eight bf16
constexpr int pack = full_width<Bf16>;
constexpr int largest_blocks = 1024;

/// Of each half of a word the larger; as bits, NaN is beyond infinity, and that beyond all numbers.
__device__ __forceinline__ std::uint32_t larger_sizes(std::uint32_t largest, const Pack16& words) {
  constexpr std::uint32_t sizes = 0x7fff7fffu;
  largest = __vmaxu2(largest, words.x & sizes);
  largest = __vmaxu2(largest, words.y & sizes);
  largest = __vmaxu2(largest, words.z & sizes);
  return __vmaxu2(largest, words.w & sizes);
}

/// The largest of the block's values, in its first thread.
__device__ __forceinline__ std::uint32_t block_largest(std::uint32_t value) {
  __shared__ std::uint32_t of_warps[block_threads / warp];
  value = __reduce_max_sync(all_lanes, value);
  if (threadIdx.x % warp == 0) of_warps[threadIdx.x / warp] = value;
  __syncthreads();
  if (threadIdx.x < block_threads / warp)
    value = __reduce_max_sync((1u << block_threads / warp) - 1, of_warps[threadIdx.x]);
  return value;
}

/// largest[block] := bits of the largest |x| that the block reads.
__global__ void __launch_bounds__(block_threads)
    largest_kernel(std::uint32_t* largest, const Bf16* x, std::int64_t leading, std::int64_t packs,
                   std::int64_t row_packs) {
  constexpr int ahead = packs_ahead;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * block_threads;
  std::uint32_t found = 0;
  for (std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x; p < packs;
       p += ahead * step) {
    Pack16 words[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const std::int64_t at = min(p + i * step, packs - 1);
      const std::int64_t row = at / row_packs;
      words[i] = *reinterpret_cast<const Pack16*>(x + row * leading + (at - row * row_packs) * pack);
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) found = larger_sizes(found, words[i]);
  }
  found = block_largest(max(found & 0xffffu, found >> 16));
  if (threadIdx.x == 0) largest[blockIdx.x] = found << 16;
}

constexpr int tile = 128;  // rows and columns
constexpr int tile_packs = tile / pack, row_groups = tile / 4;

template <class T>
constexpr __nv_fp8_interpretation_t interpretation = std::is_same_v<T, Fp8E4M3> ? __NV_E4M3 : __NV_E5M2;

/// Two numbers in 16 bits; the first in the lower.
template <class T>
__device__ __forceinline__ std::uint32_t round_two(float first, float second) {
  return __nv_cvt_float2_to_fp8x2(make_float2(first, second), __NV_SATFINITE, interpretation<T>);
}

/// A tile a block. A thread takes four rows of eight columns, so that it has whole words of the tile turned over. `largest` of
/// no parts: the scale is there.
template <class T>
__global__ void __launch_bounds__(block_threads)
    quantize_kernel(T* q, T* q_transposed, float* scale, const std::uint32_t* largest, int parts, const Bf16* x,
                    std::int64_t leading, int rows, int cols) {
  __shared__ std::uint32_t turned[tile][row_groups + 1];
  __shared__ float found_scale;
  if (parts > 0) {
    std::uint32_t found = 0;
    for (int i = static_cast<int>(threadIdx.x); i < parts; i += block_threads) found = max(found, largest[i]);
    found = block_largest(found);
    if (threadIdx.x == 0) {
      found_scale = fp8_scale(bits_as<float>(found), T::largest);
      if (blockIdx.x == 0 && blockIdx.y == 0) *scale = found_scale;
    }
    __syncthreads();
  }
  const float multiplier = fp8_multiplier(parts > 0 ? found_scale : *scale);

  const int first_row = static_cast<int>(blockIdx.y) * tile, first_col = static_cast<int>(blockIdx.x) * tile;
  const int p = static_cast<int>(threadIdx.x) % tile_packs, col = first_col + p * pack;
#pragma unroll
  for (int half = 0; half < row_groups * tile_packs / block_threads; ++half) {
    const int group = static_cast<int>(threadIdx.x) / tile_packs + half * (block_threads / tile_packs);
    const int row = first_row + 4 * group;
    if (row >= rows || col >= cols) continue;
    Pack16 words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = *reinterpret_cast<const Pack16*>(x + (row + i) * leading + col);
    uint2 rounded[4];  // eight columns of each row
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto v = widen_words<Bf16>(words[i]);
      const auto two = [&](int at) { return round_two<T>(v.at[at] * multiplier, v.at[at + 1] * multiplier); };
      rounded[i] = make_uint2(two(0) | two(2) << 16, two(4) | two(6) << 16);
      if (q != nullptr) *reinterpret_cast<uint2*>(q + static_cast<std::int64_t>(row + i) * cols + col) = rounded[i];
    }
    if (q_transposed == nullptr) continue;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const auto word = [&](int i) { return side == 0 ? rounded[i].x : rounded[i].y; };
      const std::uint32_t low_01 = __byte_perm(word(0), word(1), 0x5140),
                          low_23 = __byte_perm(word(2), word(3), 0x5140);
      const std::uint32_t high_01 = __byte_perm(word(0), word(1), 0x7362),
                          high_23 = __byte_perm(word(2), word(3), 0x7362);
      const std::uint32_t columns[4] = {__byte_perm(low_01, low_23, 0x5410), __byte_perm(low_01, low_23, 0x7632),
                                        __byte_perm(high_01, high_23, 0x5410), __byte_perm(high_01, high_23, 0x7632)};
      // Groups of a column change places with its quarter of the tile, so that a warp's words go to all banks.
#pragma unroll
      for (int i = 0; i < 4; ++i) turned[p * pack + side * 4 + i][group ^ (p / 4 * 2)] = columns[i];
    }
  }
  if (q_transposed == nullptr) return;
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) % warp, row = first_row + 4 * group;
  if (row >= rows) return;
  for (int c = static_cast<int>(threadIdx.x) / warp; c < min(tile, cols - first_col); c += block_threads / warp) {
    const std::uint32_t word = turned[c][group ^ (c / (4 * pack) * 2)];
    *reinterpret_cast<std::uint32_t*>(q_transposed + static_cast<std::int64_t>(first_col + c) * rows + row) = word;
  }
}

}  // namespace

void CudaKernels::do_quantize(Stream s, Tensor q, Tensor q_transposed, Tensor scale, Tensor x, Scale known) {
  const cudaStream_t stream = streams_[s];
  if (x.numel() == 0) return do_fill(s, scale, 1);
  require(is_packed({x}, pack), ExitCode::internal,
          "internal error: quantize on the GPU wants rows of 16-byte packs, not {}", x.describe());
  const std::int64_t packs = x.numel() / pack, row_packs = x.cols() / pack;
  unsigned parts = 0;
  std::uint32_t* largest = nullptr;
  if (known == Scale::unknown) {
    parts = static_cast<unsigned>(std::clamp<std::int64_t>(
        (packs + block_threads * packs_ahead - 1) / (block_threads * packs_ahead), 1, largest_blocks));
    largest = static_cast<std::uint32_t*>(partial_sums(parts * sizeof(std::uint32_t)));
    largest_kernel<<<parts, block_threads, 0, stream>>>(largest, x.ptr<Bf16>(), x.leading, packs, row_packs);
    check_launch("quantize");
  }
  const dim3 tiles(static_cast<unsigned>((x.cols() + tile - 1) / tile),
                   static_cast<unsigned>((x.rows() + tile - 1) / tile));
  dispatch_fp8("quantize", q ? q.dtype : q_transposed.dtype, [&]<class T>(T) {
    const auto pointer = [](const Tensor& t) { return t ? t.ptr<T>() : nullptr; };
    quantize_kernel<T><<<tiles, block_threads, 0, stream>>>(pointer(q), pointer(q_transposed), scale.ptr<float>(),
                                                            largest, static_cast<int>(parts), x.ptr<Bf16>(), x.leading,
                                                            static_cast<int>(x.rows()), static_cast<int>(x.cols()));
    check_launch("quantize");
  });
}

}  // namespace llmtrain
