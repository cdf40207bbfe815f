// SPDX-License-Identifier: Apache-2.0
/// What both norms share: the rows that they normalise, how many threads a row gets, and the gradient's row blocks.
#pragma once

#include "cuda/partial_sums.cuh"
#include "llmtrain/backend/workspace.hpp"

namespace llmtrain {

/// The rows of a [tokens, cols] tensor, or its pieces of `width` columns (heads) as rows of their own.
template <class T>
struct NormRows {
  NormRows(const Tensor& t, std::int64_t row_width)
      : data(t ? t.ptr<T>() : nullptr), leading(t.leading), width(row_width), pieces(t ? t.cols() / row_width : 1) {}
  __device__ __forceinline__ T* row(std::int64_t r) const {
    if (pieces == 1) return data + r * leading;
    return data + r / pieces * leading + r % pieces * width;
  }
  __host__ __device__ __forceinline__ explicit operator bool() const { return data != nullptr; }

  T* data;
  std::int64_t leading, width, pieces;
};

/// How a row is spread: `group` threads with `packs` 16-byte packs each, held in registers. packs 0: any row, read again
/// for every pass, an element a thread at a time.
template <int packs_, int group_>
struct RowShape {
  static constexpr int packs = packs_;
  static constexpr int group = group_;
  static constexpr int rows = block_threads / group;  ///< of a block at a time
};
using AnyRow = RowShape<0, block_threads>;

/// Calls f with the RowShape for rows of `cols` elements of type T; `packed`: their addresses allow 16-byte accesses.
template <class T, class F>
void dispatch_row(std::int64_t cols, bool packed, F&& f) {
  if constexpr (sizeof(T) < 8) {
    const std::int64_t n = cols / full_width<T>;
    const auto choose = [&]<int group>() {
      if (n <= 3 * group) return f(RowShape<3, group>{});
      return f(RowShape<4, group>{});
    };
    if (packed && n <= 32) return f(RowShape<1, 32>{});
    if (packed && n <= 64) return f(RowShape<2, 32>{});
    if (packed && n <= 128) return choose.template operator()<32>();
    if (packed && n <= 256) return choose.template operator()<64>();
    if (packed && n <= 512) return choose.template operator()<128>();
    if (packed && n <= 1024) return choose.template operator()<256>();
  }
  f(AnyRow{});
}

/// Whether all rows can be read in 16-byte packs.
template <class T>
bool rows_are_packed(std::initializer_list<Tensor> tensors, std::int64_t cols) {
  return cols % full_width<T> == 0 && is_packed(tensors, full_width<T>);
}

/// Place of this thread: `lane` of the group that works on one row.
template <class Shape>
struct RowThread {
  int lane = static_cast<int>(threadIdx.x) % Shape::group;
  int group = static_cast<int>(threadIdx.x) / Shape::group;
};

/// What a thread reads of a row in a backward pass: all loads are on their way before the first is used.
template <class T, class Shape>
struct RowGradients {
  static constexpr int width = full_width<T>;
  Pack<T, width> x[Shape::packs], d_y[Shape::packs], through[Shape::packs];

  template <class Call>
  __device__ __forceinline__ void load(const Call& call, std::int64_t r, int lane) {
#pragma unroll
    for (int p = 0; p < Shape::packs; ++p) {
      const int c = (p * Shape::group + lane) * width;
      if (c >= call.cols) continue;
      x[p] = load_pack<width>(call.x.row(r) + c);
      d_y[p] = load_pack<width>(call.d_y.row(r) + c);
      if (call.d_residual) through[p] = load_pack<width>(call.d_residual.row(r) + c);
    }
  }
};

/// Rows [begin, end) of block b of `blocks`.
struct RowRange {
  std::int64_t begin, end;
};
__device__ __forceinline__ RowRange row_range(std::int64_t rows) {
  return {rows * blockIdx.x / gridDim.x, rows * (blockIdx.x + 1) / gridDim.x};
}

/// partial [cols] = sums over the groups of the block of what each of its threads holds for its packs, in order of the
/// group. `shared` has room for a row.
template <class Shape, int width, class S>
__device__ void store_row_sums(S* partial, const Values<S, width> (&sums)[Shape::packs], std::int64_t cols, S* shared) {
  const RowThread<Shape> me;
  for (int group = 0; group < Shape::rows; ++group) {
    __syncthreads();
    if (me.group != group) continue;
#pragma unroll
    for (int p = 0; p < Shape::packs; ++p) {
      const int c = (p * Shape::group + me.lane) * width;
      if (c >= cols) continue;
#pragma unroll
      for (int i = 0; i < width; ++i) shared[c + i] = group == 0 ? sums[p].at[i] : shared[c + i] + sums[p].at[i];
    }
  }
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) partial[c] = shared[c];
}

}  // namespace llmtrain
