// SPDX-License-Identifier: Apache-2.0
/// RMSNorm with the residual sum in front of it, and its gradient, on the GPU.
#include <cmath>

#include "cuda/cuda_kernels.hpp"
#include "cuda/norm.cuh"

namespace llmtrain {

namespace {

template <class T>
struct Forward {
  using S = StatsType<T>;
  Matrix<T> y, residual, x, delta;
  const T* weight;
  S* rstd;
  NormRows rows;
  S eps;
};

template <class T, class Shape>
__global__ void __launch_bounds__(block_threads, forward_blocks<Shape>) rms_forward(const Forward<T> call) {
  using S = StatsType<T>;
  constexpr int width = full_width<T>;
  __shared__ S shared[block_threads / warp];
  const RowThread<Shape> me;
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * Shape::rows + me.group;
  if (r >= call.rows.count) return;
  const int cols = call.rows.cols;
  const RowPacks<T, Shape> in = load_normalised<T, Shape>(call, r);
  S squares{0};
  for_row_packs<T, Shape>(cols, [&](int p, int) {
    const auto value = in.values(p);
#pragma unroll
    for (int i = 0; i < width; ++i) squares = std::fma(value.at[i], value.at[i], squares);
  });
  squares = group_sum<Shape::group>(squares, shared);
  const S inverse = S{1} / std::sqrt(squares / static_cast<S>(cols) + call.eps);
  if (me.lane == 0) call.rstd[r] = inverse;
  T* const y = call.rows.row_of(call.y, r);
  for_row_packs<T, Shape>(cols, [&](int p, int c) {
    auto value = in.values(p);
    const auto w = widen(load_pack<width>(call.weight + c));
#pragma unroll
    for (int i = 0; i < width; ++i) value.at[i] = value.at[i] * inverse * w.at[i];
    store_pack(y + c, narrow<T>(value));
  });
}

/// Any width and alignment: one block a row.
template <class T>
__global__ void __launch_bounds__(block_threads) rms_forward_any(const Forward<T> call) {
  using S = StatsType<T>;
  __shared__ S shared[block_threads / warp];
  const auto row_of = [&](const Matrix<T>& matrix) { return call.rows.row_of(matrix, blockIdx.x); };
  const int cols = call.rows.cols;
  const T* in = row_of(call.x);
  const T* const delta = row_of(call.delta);
  T* const residual = row_of(call.residual);
  S squares{0};
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) {
    T value = in[c];
    if (call.delta) {
      store(value, load(in[c]) + load(delta[c]));
      residual[c] = value;
    }
    squares = std::fma(load(value), load(value), squares);
  }
  if (call.delta) in = residual;  // each thread reads what it wrote
  squares = group_sum<block_threads>(squares, shared);
  const S inverse = S{1} / std::sqrt(squares / static_cast<S>(cols) + call.eps);
  if (threadIdx.x == 0) call.rstd[blockIdx.x] = inverse;
  T* const y = row_of(call.y);
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) {
    store(y[c], load(in[c]) * inverse * load(call.weight[c]));
  }
}

/// d_x = d_residual + rstd (w d_y - x rstd^2 mean(w d_y x)), d_w += d_y x rstd.
template <class T>
struct Backward {
  using S = StatsType<T>;
  Matrix<T> d_x, d_residual, d_y, x;
  const T* weight;
  const S* rstd;
  S* partials;  ///< [blocks, cols]
  NormRows rows;
};

template <class T, class Batch>
__global__ void __launch_bounds__(Batch::threads, Batch::blocks) rms_backward(const Backward<T> call) {
  using S = StatsType<T>;
  constexpr int width = full_width<T>;
  using Columns = Values<S, width>;
  const int cols = call.rows.cols;
  const BatchThread<T> me(cols);
  Columns weight = {}, gradients[1] = {};  // of weight
  if (me.in_row) weight = widen(load_pack<width>(call.weight + me.column));
  const S share = S{1} / static_cast<S>(cols);
  walk_rows<Batch, 1>(
      call, me, [&](std::int64_t r) { return call.rstd[r]; },
      [&](const Columns& x, const Columns& d_y, S inverse, S* dot) {  // of w d_y with x
#pragma unroll
        for (int i = 0; i < width; ++i) {
          *dot = std::fma(weight.at[i] * d_y.at[i], x.at[i], *dot);
          gradients[0].at[i] = std::fma(d_y.at[i], x.at[i] * inverse, gradients[0].at[i]);
        }
      },
      [&](const Columns& x, const Columns& d_y, const Columns& d_residual, S inverse, const S* dot) {
        const S slope = -inverse * inverse * share * *dot;
        Columns d_x;
#pragma unroll
        for (int i = 0; i < width; ++i) {
          const S along = std::fma(weight.at[i], d_y.at[i], x.at[i] * slope);
          d_x.at[i] = std::fma(inverse, along, d_residual.at[i]);
        }
        return d_x;
      });
  store_row_sums<T>(call.partials + blockIdx.x * static_cast<std::int64_t>(cols), cols, gradients, me);
}

/// Any width and alignment: a block works on its rows one by one, its thread's columns are added up in memory.
template <class T>
__global__ void __launch_bounds__(block_threads) rms_backward_any(const Backward<T> call) {
  using S = StatsType<T>;
  __shared__ S shared[block_threads / warp];
  const int cols = call.rows.cols;
  S* const partial = call.partials + blockIdx.x * static_cast<std::int64_t>(cols);
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) partial[c] = 0;
  const RowRange range = row_range(call.rows.count);
  for (std::int64_t r = range.begin; r < range.end; ++r) {
    const auto row_of = [&](const Matrix<T>& matrix) { return call.rows.row_of(matrix, r); };
    const T *const in = row_of(call.x), *const dy = row_of(call.d_y), *const d_residual = row_of(call.d_residual);
    T* const d_x = row_of(call.d_x);
    S dot{0};
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) {
      dot = std::fma(load(call.weight[c]) * load(dy[c]), load(in[c]), dot);
    }
    dot = group_sum<block_threads>(dot, shared);
    const S inverse = call.rstd[r], along = inverse * inverse * inverse * dot / static_cast<S>(cols);
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) {
      const S g = load(dy[c]), v = load(in[c]);
      const S incoming = call.d_residual ? load(d_residual[c]) : S{0};
      partial[c] = std::fma(g, v * inverse, partial[c]);
      store(d_x[c], incoming + std::fma(inverse * load(call.weight[c]), g, -along * v));
    }
  }
}

}  // namespace

void CudaKernels::do_rms_norm_forward(Stream s, Tensor y, Tensor residual, Tensor rstd, Tensor x, Tensor delta,
                                      Tensor weight, double eps) {
  const std::int64_t cols = weight.numel(), rows = x.numel() / cols;
  if (rows == 0) return;
  dispatch("rms_norm_forward", x.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    if (!delta) residual = {};
    const Forward<T> call{Matrix<T>(y),    Matrix<T>(residual), Matrix<T>(x),      Matrix<T>(delta),
                          weight.ptr<T>(), rstd.ptr<S>(),       NormRows(x, cols), static_cast<S>(eps)};
    const Tensor flat = weight.reshaped({1, cols});
    dispatch_row<T>(cols, rows_are_packed<T>({y, residual, x, delta, flat}, cols), [&]<class Shape>(Shape) {
      if constexpr (std::is_same_v<Shape, AnyRow>) {
        rms_forward_any<<<static_cast<unsigned>(rows), block_threads, 0, streams_[s]>>>(call);
      } else {
        const auto blocks = static_cast<unsigned>((rows + Shape::rows - 1) / Shape::rows);
        rms_forward<T, Shape><<<blocks, block_threads, 0, streams_[s]>>>(call);
      }
    });
    check_launch("rms_norm_forward");
  });
}

void CudaKernels::do_rms_norm_backward(Stream s, Tensor d_x, Tensor d_weight, Tensor d_residual, Tensor d_y, Tensor x,
                                       Tensor rstd, Tensor weight, Write write, Tensor workspace) {
  const std::int64_t cols = weight.numel(), rows = x.numel() / cols;
  const std::int64_t needed = norm_backward_workspace(DeviceKind::cuda, rows, cols, rstd.dtype);
  require(workspace.numel() >= needed, ExitCode::internal,
          "internal error: rms_norm_backward on {} needs {} bytes of workspace, has {}", x.describe(), needed,
          workspace.numel());
  dispatch("rms_norm_backward", x.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    S* const partials = static_cast<S*>(workspace.data);
    const std::int64_t blocks = needed / (cols * static_cast<std::int64_t>(sizeof(S)));
    const Backward<T> call{Matrix<T>(d_x),  Matrix<T>(d_residual), Matrix<T>(d_y), Matrix<T>(x),
                           weight.ptr<T>(), rstd.ptr<S>(),         partials,       NormRows(x, cols)};
    const Tensor flat = weight.reshaped({1, cols});
    if (blocks > 0) {
      dispatch_batch<T>(cols, rows_are_packed<T>({d_x, d_residual, d_y, x, flat}, cols), [&]<class Batch>(Batch) {
        if constexpr (std::is_same_v<Batch, AnyRow>) {
          rms_backward_any<<<static_cast<unsigned>(blocks), block_threads, 0, streams_[s]>>>(call);
        } else {
          launch_walk<T, Batch>(rms_backward<T, Batch>, blocks, streams_[s], call);
        }
      });
      check_launch("rms_norm_backward");
    }
    add_partial_sums(streams_[s], {d_weight}, partials, blocks, write);
  });
}

}  // namespace llmtrain
