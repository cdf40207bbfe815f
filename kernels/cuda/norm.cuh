// SPDX-License-Identifier: Apache-2.0
/// What both norms share: the rows that they normalise, how many threads a row gets, and the gradient's row blocks.
#pragma once

#include <cuda_pipeline.h>

#include "cuda/partial_sums.cuh"
#include "llmtrain/backend/workspace.hpp"

namespace llmtrain {

/// Normalised rows: those of [tokens, cols] tensors, or their pieces of `cols` columns (heads) as rows of their own.
struct NormRows {
  NormRows(const Tensor& x, std::int64_t row_cols)
      : count(x.numel() / row_cols), pieces(x.cols() / row_cols), cols(static_cast<int>(row_cols)) {}

  /// Where a row begins.
  struct Place {
    std::int64_t token, column;
  };
  __device__ __forceinline__ Place place(std::int64_t row) const {
    if (pieces == 1) return {row, 0};
    return {row / pieces, row % pieces * cols};
  }

  std::int64_t count, pieces;
  int cols;
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

/// Blocks on a multiprocessor at a time: as many as keep enough bytes on their way and hold their row in registers. A
/// backward pass has all of its blocks (workspace.cpp) at work at once.
template <class Shape>
inline constexpr int forward_blocks = Shape::packs > 3 ? 3 : 4;
inline constexpr int backward_blocks = 2;

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
    if (packed && n <= 128) return choose.template operator()<32>();  // from here on n > 2 * group
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

/// The packs of this thread in a row: body(pack, column) for each. Only the last one may lie beyond the row's end: with
/// fewer packs a row would have no place in its shape.
template <class T, class Shape, class Body>
__device__ __forceinline__ void for_row_packs(int cols, const Body& body) {
  const RowThread<Shape> me;
#pragma unroll
  for (int p = 0; p < Shape::packs; ++p) {
    const int c = (p * Shape::group + me.lane) * full_width<T>;
    if (p < Shape::packs - 1 || c < cols) body(p, c);
  }
}

/// This thread's packs of one row.
template <class T, class Shape>
struct RowPacks {
  uint4 words[Shape::packs];

  __device__ __forceinline__ void load(const T* row, int cols) {
    for_row_packs<T, Shape>(cols, [&](int p, int c) { words[p] = *reinterpret_cast<const uint4*>(row + c); });
  }
  __device__ __forceinline__ Values<StatsType<T>, full_width<T>> values(int p) const {
    return widen_words<T>(words[p]);
  }
};

/// What a row's norm is taken of: x, or x + delta, which is then stored as `residual`, and counts as stored: the backward
/// pass sees the rounded sum. All loads are on their way before the first is used.
template <class T, class Shape, class Call>
__device__ __forceinline__ RowPacks<T, Shape> load_normalised(const Call& call, NormRows::Place at) {
  const int cols = call.rows.cols;
  RowPacks<T, Shape> in, delta;
  if (call.delta) delta.load(call.delta.at(at.token, at.column), cols);
  in.load(call.x.at(at.token, at.column), cols);
  if (!call.delta) return in;
  T* const residual = call.residual.at(at.token, at.column);
  for_row_packs<T, Shape>(cols, [&](int p, int c) {
    auto sum = in.values(p);
    const auto term = delta.values(p);
#pragma unroll
    for (int i = 0; i < full_width<T>; ++i) sum.at[i] += term.at[i];
    in.words[p] = bits_as<uint4>(narrow<T>(sum));
    *reinterpret_cast<uint4*>(residual + c) = in.words[p];
  });
  return in;
}

/// What a backward pass reads of its rows: x, d_y and, where there is one, d_residual, a row ahead of the one that is
/// worked on, in shared memory: each thread finds there what it asked for itself, so that no other needs to wait.
template <class T, class Shape>
class RowsAhead {
 public:
  static constexpr int stages = 2;
  enum Part { x, d_y, d_residual, parts };
  static constexpr int bytes = stages * parts * Shape::packs * block_threads * static_cast<int>(sizeof(uint4));

  __device__ __forceinline__ explicit RowsAhead(uint4* shared) : mine_(shared + threadIdx.x) {}

  /// Asks for a row; nothing where `row` is not below `end`. Rows are asked for and used in turn.
  template <class Call>
  __device__ __forceinline__ void ask(const Call& call, std::int64_t row, std::int64_t end) {
    if (row < end) {
      const NormRows::Place at = call.rows.place(row);
      ask_part(x, call.x.at(at.token, at.column), call.rows.cols);
      ask_part(d_y, call.d_y.at(at.token, at.column), call.rows.cols);
      if (call.d_residual) ask_part(d_residual, call.d_residual.at(at.token, at.column), call.rows.cols);
    }
    __pipeline_commit();
    asked_ ^= 1;
  }
  /// Waits for the row before the one that was asked for last; read() is then of that.
  __device__ __forceinline__ void wait() const { __pipeline_wait_prior(stages - 1); }
  __device__ __forceinline__ Values<StatsType<T>, full_width<T>> read(Part part, int p) const {
    return widen_words<T>(*at(asked_, part, p));
  }

 private:
  __device__ __forceinline__ uint4* at(int stage, Part part, int p) const {
    return mine_ + ((stage * parts + part) * Shape::packs + p) * block_threads;
  }
  __device__ __forceinline__ void ask_part(Part part, const T* row, int cols) const {
    for_row_packs<T, Shape>(
        cols, [&](int p, int c) { __pipeline_memcpy_async(at(asked_, part, p), row + c, sizeof(uint4)); });
  }

  uint4* mine_;
  int asked_ = 0;  ///< stage that the next row goes to
};

/// Launches a backward kernel over row blocks with the shared memory that RowsAhead takes.
template <class T, class Shape, class Call>
void launch_rows_ahead(void (*kernel)(Call), std::int64_t blocks, cudaStream_t stream, const Call& call) {
  constexpr int bytes = RowsAhead<T, Shape>::bytes;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);  // once a kernel
  check_cuda(allowed, "cudaFuncSetAttribute");
  kernel<<<static_cast<unsigned>(blocks), block_threads, bytes, stream>>>(call);
}

/// Rows [begin, end) of block b of `blocks`.
struct RowRange {
  std::int64_t begin, end;
};
__device__ __forceinline__ RowRange row_range(std::int64_t rows) {
  return {rows * blockIdx.x / gridDim.x, rows * (blockIdx.x + 1) / gridDim.x};
}

/// partial [cols] = sums over the groups of the block of what each of its threads holds for its packs, in order of the
/// group. `shared` has room for all of them, apart by what keeps neighbours of a column off its bank.
template <class Shape, int width, class S>
__device__ void store_row_sums(S* partial, const Values<S, width> (&sums)[Shape::packs], int cols, S* shared) {
  constexpr int step = block_threads + warp / width;
  __syncthreads();
#pragma unroll
  for (int p = 0; p < Shape::packs; ++p) {
#pragma unroll
    for (int i = 0; i < width; ++i) shared[(p * width + i) * step + threadIdx.x] = sums[p].at[i];
  }
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) {
    const int pack = c / width;
    const S* const first = shared + (pack / Shape::group * width + c % width) * step + pack % Shape::group;
    S sum = first[0];
#pragma unroll
    for (int group = 1; group < Shape::rows; ++group) sum += first[group * Shape::group];
    partial[c] = sum;
  }
}

}  // namespace llmtrain
