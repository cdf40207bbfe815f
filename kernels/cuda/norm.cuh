// SPDX-License-Identifier: Apache-2.0
/// What both norms share: the rows that they normalise, how many threads a row gets, and the walk of the gradient over rows.
#pragma once

#include <cuda_pipeline.h>

#include <bit>

#include "cuda/partial_sums.cuh"
#include "llmtrain/backend/workspace.hpp"

namespace llmtrain {

/// Normalised rows: those of [tokens, cols] tensors, or their pieces of `cols` columns (heads) as rows of their own.
struct NormRows {
  NormRows(const Tensor& x, std::int64_t row_cols)
      : count(x.numel() / row_cols),
        pieces(static_cast<unsigned>(x.cols() / row_cols)),
        cols(static_cast<int>(row_cols)) {
    require(count < std::int64_t{1} << 31, ExitCode::internal, "internal error: a norm of {} rows at once", count);
    // ceil(2^(31 + shift) / pieces) finds the quotient of any number below 2^31
    shift = std::bit_width(pieces - 1);
    reciprocal = static_cast<unsigned>(((std::uint64_t{1} << (31 + shift)) + pieces - 1) / pieces);
  }

  /// A row: a piece of a token.
  struct Place {
    unsigned token, piece;
  };
  __device__ __forceinline__ Place place(unsigned row) const {
    const unsigned token = __umulhi(2 * row, reciprocal) >> shift;
    return {token, row - token * pieces};
  }
  /// Where a row of a tensor begins.
  template <class T>
  __device__ __forceinline__ T* row_of(const Matrix<T>& matrix, std::int64_t row) const;

  std::int64_t count;
  unsigned pieces;
  int cols;

 private:
  int shift;
  unsigned reciprocal;
};

/// One column of all rows of a tensor.
template <class T>
class RowPointer {
 public:
  __device__ __forceinline__ RowPointer(const Matrix<T>& matrix, const NormRows& rows, int column)
      : base_(reinterpret_cast<char*>(matrix.data + column)),
        token_bytes_(static_cast<unsigned>(matrix.leading * sizeof(T))),
        piece_bytes_(static_cast<unsigned>(rows.cols * sizeof(T))) {}
  __device__ __forceinline__ T* at(NormRows::Place row) const {
    return reinterpret_cast<T*>(base_ + std::uint64_t{row.token} * token_bytes_ +
                                std::uint64_t{row.piece} * piece_bytes_);
  }

 private:
  char* base_;
  unsigned token_bytes_, piece_bytes_;
};

template <class T>
__device__ __forceinline__ T* NormRows::row_of(const Matrix<T>& matrix, std::int64_t row) const {
  return RowPointer<T>(matrix, *this, 0).at(place(static_cast<unsigned>(row)));
}

/// How a row is spread going forward: `group` threads with `packs` 16-byte packs each, held in registers.
template <int packs_, int group_>
struct RowShape {
  static constexpr int packs = packs_;
  static constexpr int group = group_;
  static constexpr int rows = block_threads / group;  ///< of a block at a time
};
/// Any row instead of one of a shape: read again for every pass, an element a thread at a time.
struct AnyRow {};

/// Blocks on a multiprocessor at a time: as many as keep enough bytes on their way and hold their row in registers.
template <class Shape>
inline constexpr int forward_blocks = Shape::packs > 3 ? 3 : 4;

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
__device__ __forceinline__ RowPacks<T, Shape> load_normalised(const Call& call, std::int64_t row) {
  const int cols = call.rows.cols;
  RowPacks<T, Shape> in, delta;
  if (call.delta) delta.load(call.rows.row_of(call.delta, row), cols);
  in.load(call.rows.row_of(call.x, row), cols);
  if (!call.delta) return in;
  T* const residual = call.rows.row_of(call.residual, row);
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

/// How rows are spread going backward: a thread has one 16-byte pack of each of `rows` rows at a time. It keeps the sums of
/// few columns in registers then, and one exchange between the threads of a row serves all of those rows. Blocks of up to
/// `threads` threads, `blocks` of them on a multiprocessor: all that there are (workspace.cpp) are at work at once.
template <int rows_, int threads_, int blocks_>
struct RowBatch {
  static constexpr int rows = rows_;
  static constexpr int threads = threads_;
  static constexpr int blocks = blocks_;
};

/// Calls f with the RowBatch for rows of `cols` elements of type T; `packed`: their addresses allow 16-byte accesses.
template <class T, class F>
void dispatch_batch(std::int64_t cols, bool packed, F&& f) {
  if constexpr (sizeof(T) < 8) {
    const std::int64_t n = cols / full_width<T>;
    if (packed && n <= 256) return f(RowBatch<3, 256, 2>{});
    if (packed && n <= 512) return f(RowBatch<1, 512, 2>{});
    if (packed && n <= 1024) return f(RowBatch<1, 1024, 1>{});
  }
  f(AnyRow{});
}

/// Threads that a row of `cols` elements gets going backward: whole warps, the last one's beyond the row idle.
template <class T>
__host__ __device__ __forceinline__ int batch_group(int cols) {
  return (cols / full_width<T> + warp - 1) / warp * warp;
}

/// Place of a thread going backward: its pack of the rows of its group.
template <class T>
struct BatchThread {
  __device__ __forceinline__ explicit BatchThread(int cols)
      : group_threads(batch_group<T>(cols)),
        groups(static_cast<int>(blockDim.x) / group_threads),
        group(static_cast<int>(threadIdx.x) / group_threads),
        column((static_cast<int>(threadIdx.x) - group * group_threads) * full_width<T>),
        in_row(column < cols) {}

  int group_threads, groups, group, column;
  bool in_row;
};

/// What a backward pass reads of its rows: x, d_y and, where there is one, d_residual, a batch ahead of the one that is
/// worked on, in shared memory: each thread finds there what it asked for itself, so that no other needs to wait.
template <class T, class Batch>
class RowsAhead {
 public:
  static constexpr int stages = 2;
  enum Part { x, d_y, d_residual, parts };
  static constexpr int bytes = stages * Batch::rows * parts * Batch::threads * static_cast<int>(sizeof(uint4));

  template <class Call>
  __device__ __forceinline__ RowsAhead(uint4* shared, const Call& call, const BatchThread<T>& me)
      : mine_(shared + threadIdx.x),
        from_{
            {call.x, call.rows, me.column}, {call.d_y, call.rows, me.column}, {call.d_residual, call.rows, me.column}},
        there_{me.in_row, me.in_row, me.in_row && call.d_residual} {}

  /// Asks for a batch of rows. What lies beyond `end` of them, or beyond the row, or in an absent d_residual, becomes zero:
  /// it adds nothing to any sum, so that all rows and columns of a batch can be worked on alike.
  __device__ __forceinline__ void ask(const NormRows& rows, int first, int end) {
#pragma unroll
    for (int r = 0; r < Batch::rows; ++r) {
      const NormRows::Place at = rows.place(static_cast<unsigned>(first + r));
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        const bool there = there_[part] && first + r < end;
        __pipeline_memcpy_async(slot(asked_, part, r), from_[part].at(at), sizeof(uint4), there ? 0 : sizeof(uint4));
      }
    }
    __pipeline_commit();
    asked_ ^= 1;
  }
  /// Waits for the batch before the one that was asked for last; read() is then of that.
  __device__ __forceinline__ void wait() const { __pipeline_wait_prior(stages - 1); }
  /// Waits for all: the memory can have other uses then.
  __device__ __forceinline__ void finish() const { __pipeline_wait_prior(0); }
  __device__ __forceinline__ Values<StatsType<T>, full_width<T>> read(Part part, int r) const {
    return widen_words<T>(*slot(asked_, part, r));
  }

 private:
  __device__ __forceinline__ uint4* slot(int stage, int part, int r) const {
    return mine_ + ((stage * Batch::rows + r) * parts + part) * Batch::threads;
  }

  uint4* mine_;
  RowPointer<T> from_[parts];
  bool there_[parts];
  int asked_ = 0;  ///< stage that the next batch goes to
};

/// Replaces each of the values by its sum over the threads of the group, the same in all of them and always added in the
/// same order. `count` is a power of two; `shared` has `count` elements a warp of the block, others than the call before.
template <class Batch, int count, class S, class T>
__device__ __forceinline__ void batch_sums(S (&values)[count], S* shared, const BatchThread<T>& me) {
  constexpr int copies = warp / count;  // lanes that have the same value
  const int lane = static_cast<int>(threadIdx.x) % warp;
  // Half of the values go to the lane across while its other half comes: in the end a lane has one value's sum.
  int across = warp / 2;
#pragma unroll
  for (int half = count / 2; half > 0; half /= 2, across /= 2) {
    const bool upper = (lane & across) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const S given = upper ? values[i] : values[i + half], kept = upper ? values[i + half] : values[i];
      values[i] = kept + __shfl_xor_sync(all_lanes, given, across);
    }
  }
#pragma unroll
  for (; across > 0; across /= 2) values[0] += __shfl_xor_sync(all_lanes, values[0], across);
  if (lane % copies == 0) shared[static_cast<int>(threadIdx.x) / warp * count + lane / copies] = values[0];
  group_wait(me.group, me.group_threads);
  const int warps = me.group_threads / warp;
  const S* const first = shared + me.group * warps * count;
  S sum{0};
#pragma unroll
  for (int w = 0; w < Batch::threads / warp; w += copies) {
    if (w + lane / count < warps) sum += first[w * count + lane];
  }
#pragma unroll
  for (int offset = count; offset < warp; offset *= 2) sum += __shfl_xor_sync(all_lanes, sum, offset);
#pragma unroll
  for (int i = 0; i < count; ++i) values[i] = __shfl_sync(all_lanes, sum, i);
}

/// Rows [begin, end) of block b of `blocks`.
struct RowRange {
  int begin, end;
};
__device__ __forceinline__ RowRange row_range(std::int64_t rows) {
  return {static_cast<int>(rows * blockIdx.x / gridDim.x), static_cast<int>(rows * (blockIdx.x + 1) / gridDim.x)};
}

/// The gradient of the rows of this block. stats(row): what the forward pass kept of a row; add(x, d_y, stats, sums): adds
/// this thread's columns of a row to that row's `count` sums; d_x(x, d_y, d_residual, stats, sums): its columns of the
/// gradient, given the sums of the whole row.
template <class Batch, int count, class T, class Call, class StatsOf, class Add, class Gradient>
__device__ __forceinline__ void walk_rows(const Call& call, const BatchThread<T>& me, const StatsOf& stats_of,
                                          const Add& add, const Gradient& d_x) {
  using S = StatsType<T>;
  using Ahead = RowsAhead<T, Batch>;
  constexpr int rows = Batch::rows;
  constexpr int values = static_cast<int>(std::bit_ceil(static_cast<unsigned>(count * rows)));
  extern __shared__ uint4 ahead_memory[];
  __shared__ S shared[2][values * Batch::threads / warp];
  const RowRange range = row_range(call.rows.count);
  const int step = me.groups * rows;
  int first = range.begin + me.group * rows;
  const RowPointer<T> d_x_column(call.d_x, call.rows, me.column);
  Ahead ahead(ahead_memory, call, me);
  ahead.ask(call.rows, first, range.end);
  decltype(stats_of(first)) stats[rows], next[rows];
  const auto read_stats = [&](int begin) {
#pragma unroll
    for (int r = 0; r < rows; ++r) next[r] = stats_of(min(begin + r, range.end - 1));
  };
  read_stats(first);
  for (int turn = 0; first < range.end; first += step, turn ^= 1) {
#pragma unroll
    for (int r = 0; r < rows; ++r) stats[r] = next[r];
    ahead.ask(call.rows, first + step, range.end);
    read_stats(first + step);
    ahead.wait();
    S sums[values] = {};
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      add(ahead.read(Ahead::x, r), ahead.read(Ahead::d_y, r), stats[r], sums + r * count);
    }
    batch_sums<Batch>(sums, shared[turn], me);
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const auto gradient = d_x(ahead.read(Ahead::x, r), ahead.read(Ahead::d_y, r), ahead.read(Ahead::d_residual, r),
                                stats[r], sums + r * count);
      T* const to = d_x_column.at(call.rows.place(static_cast<unsigned>(first + r)));
      if (me.in_row && first + r < range.end) store_pack(to, narrow<T>(gradient));
    }
  }
  ahead.finish();
}

/// partials [count, cols] = the sums over the groups of the block of what each of their threads holds for its columns, in
/// order of the group. Uses the memory of walk_rows, which must be over.
template <class T, class S, int count>
__device__ __forceinline__ void store_row_sums(S* partials, int cols, Values<S, full_width<T>> (&sums)[count],
                                               const BatchThread<T>& me) {
  constexpr int width = full_width<T>;
  let_sums_follow();
  if (me.groups > 1) {
    extern __shared__ uint4 ahead_memory[];
    S* const shared = reinterpret_cast<S*>(ahead_memory) + threadIdx.x;
    const auto threads = static_cast<int>(blockDim.x);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < count * width; ++k) shared[k * threads] = sums[k / width].at[k % width];
    __syncthreads();
    for (int group = 1; group < me.groups; ++group) {
#pragma unroll
      for (int k = 0; k < count * width; ++k) {
        if (me.group == 0) sums[k / width].at[k % width] += shared[k * threads + group * me.group_threads];
      }
    }
  }
  if (me.group != 0 || !me.in_row) return;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    store_pack(partials + i * cols + me.column, bits_as<Pack<S, width>>(sums[i]));
  }
}

/// Launches a backward kernel over `blocks` row blocks with the shared memory that walk_rows takes.
template <class T, class Batch, class Call>
void launch_walk(void (*kernel)(Call), std::int64_t blocks, cudaStream_t stream, const Call& call) {
  constexpr int bytes = RowsAhead<T, Batch>::bytes;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);  // once a kernel
  check_cuda(allowed, "cudaFuncSetAttribute");
  const int group = batch_group<T>(call.rows.cols);
  const int threads = Batch::threads / group * group;
  kernel<<<static_cast<unsigned>(blocks), threads, bytes, stream>>>(call);
}

}  // namespace llmtrain
