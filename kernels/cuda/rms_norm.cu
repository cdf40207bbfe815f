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
  const NormRows::Place at = call.rows.place(r);
  const int cols = call.rows.cols;
  const RowPacks<T, Shape> in = load_normalised<T, Shape>(call, at);
  S squares{0};
  for_row_packs<T, Shape>(cols, [&](int p, int) {
    const auto value = in.values(p);
#pragma unroll
    for (int i = 0; i < width; ++i) squares = std::fma(value.at[i], value.at[i], squares);
  });
  squares = group_sum<Shape::group>(squares, shared);
  const S inverse = S{1} / std::sqrt(squares / static_cast<S>(cols) + call.eps);
  if (me.lane == 0) call.rstd[r] = inverse;
  T* const y = call.y.at(at.token, at.column);
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
  const NormRows::Place at = call.rows.place(blockIdx.x);
  const int cols = call.rows.cols;
  const T* in = call.x.at(at.token, at.column);
  S squares{0};
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) {
    T value = in[c];
    if (call.delta) {
      store(value, load(in[c]) + load(*call.delta.at(at.token, at.column + c)));
      *call.residual.at(at.token, at.column + c) = value;
    }
    squares = std::fma(load(value), load(value), squares);
  }
  if (call.delta) in = call.residual.at(at.token, at.column);  // each thread reads what it wrote
  squares = group_sum<block_threads>(squares, shared);
  const S inverse = S{1} / std::sqrt(squares / static_cast<S>(cols) + call.eps);
  if (threadIdx.x == 0) call.rstd[blockIdx.x] = inverse;
  T* const y = call.y.at(at.token, at.column);
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

template <class T, class Shape>
__global__ void __launch_bounds__(block_threads, backward_blocks) rms_backward(const Backward<T> call) {
  using S = StatsType<T>;
  using Ahead = RowsAhead<T, Shape>;
  constexpr int width = full_width<T>;
  extern __shared__ uint4 ahead_memory[];
  __shared__ S shared[block_threads / warp];
  const RowThread<Shape> me;
  const int cols = call.rows.cols;
  RowPacks<T, Shape> weight;
  weight.load(call.weight, cols);
  Values<S, width> d_weight[Shape::packs] = {};
  const RowRange range = row_range(call.rows.count);
  const auto rstd_of = [&](std::int64_t r) { return r < range.end ? call.rstd[r] : S{0}; };
  std::int64_t r = range.begin + me.group;
  Ahead ahead(ahead_memory);
  ahead.ask(call, r, range.end);
  S next_inverse = rstd_of(r);
  for (; r < range.end; r += Shape::rows) {
    const S inverse = next_inverse;
    ahead.ask(call, r + Shape::rows, range.end);
    next_inverse = rstd_of(r + Shape::rows);
    ahead.wait();
    S dot{0};
    for_row_packs<T, Shape>(cols, [&](int p, int) {
      const auto v = ahead.read(Ahead::x, p), g = ahead.read(Ahead::d_y, p), w = weight.values(p);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        dot = std::fma(w.at[i] * g.at[i], v.at[i], dot);
        d_weight[p].at[i] = std::fma(g.at[i], v.at[i] * inverse, d_weight[p].at[i]);
      }
    });
    dot = group_sum<Shape::group>(dot, shared);
    const S along = inverse * inverse * inverse * dot / static_cast<S>(cols);
    const NormRows::Place at = call.rows.place(r);
    T* const d_x = call.d_x.at(at.token, at.column);
    for_row_packs<T, Shape>(cols, [&](int p, int c) {
      const auto v = ahead.read(Ahead::x, p), g = ahead.read(Ahead::d_y, p), w = weight.values(p);
      Values<S, width> dx;
#pragma unroll
      for (int i = 0; i < width; ++i) dx.at[i] = std::fma(inverse * w.at[i], g.at[i], -along * v.at[i]);
      if (call.d_residual) {
        const auto d = ahead.read(Ahead::d_residual, p);
#pragma unroll
        for (int i = 0; i < width; ++i) dx.at[i] += d.at[i];
      }
      store_pack(d_x + c, narrow<T>(dx));
    });
  }
  store_row_sums<Shape, width>(call.partials + blockIdx.x * static_cast<std::int64_t>(cols), d_weight, cols,
                               reinterpret_cast<S*>(ahead_memory));
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
    const NormRows::Place at = call.rows.place(r);
    const T *const in = call.x.at(at.token, at.column), *const dy = call.d_y.at(at.token, at.column);
    T* const d_x = call.d_x.at(at.token, at.column);
    S dot{0};
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) {
      dot = std::fma(load(call.weight[c]) * load(dy[c]), load(in[c]), dot);
    }
    dot = group_sum<block_threads>(dot, shared);
    const S inverse = call.rstd[r], along = inverse * inverse * inverse * dot / static_cast<S>(cols);
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) {
      const S g = load(dy[c]), v = load(in[c]);
      const S incoming = call.d_residual ? load(*call.d_residual.at(at.token, at.column + c)) : S{0};
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
      if constexpr (Shape::packs == 0) {
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
      dispatch_row<T>(cols, rows_are_packed<T>({d_x, d_residual, d_y, x, flat}, cols), [&]<class Shape>(Shape) {
        if constexpr (Shape::packs == 0) {
          rms_backward_any<<<static_cast<unsigned>(blocks), block_threads, 0, streams_[s]>>>(call);
        } else {
          launch_rows_ahead<T, Shape>(rms_backward<T, Shape>, blocks, streams_[s], call);
        }
      });
      check_launch("rms_norm_backward");
    }
    add_partial_sums(streams_[s], {d_weight}, partials, blocks, write);
  });
}

}  // namespace llmtrain
