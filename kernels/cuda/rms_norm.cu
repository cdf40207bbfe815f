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
  NormRows<T> y, residual, x, delta;
  const T* weight;
  S* rstd;
  std::int64_t rows, cols;
  S eps;
};

template <class T, class Shape>
__global__ void __launch_bounds__(block_threads) rms_forward(const Forward<T> call) {
  using S = StatsType<T>;
  constexpr int width = full_width<T>;
  __shared__ S shared[block_threads / warp];
  const RowThread<Shape> me;
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * Shape::rows + me.group;
  const bool active = r < call.rows;
  Pack<T, width> in[Shape::packs];
  S squares{0};
#pragma unroll
  for (int p = 0; p < Shape::packs; ++p) {
    const int c = (p * Shape::group + me.lane) * width;
    if (!active || c >= call.cols) continue;
    in[p] = load_pack<width>(call.x.row(r) + c);
    if (call.delta) {
      auto sum = widen(in[p]);
      const auto term = widen(load_pack<width>(call.delta.row(r) + c));
#pragma unroll
      for (int i = 0; i < width; ++i) sum.at[i] += term.at[i];
      in[p] = narrow<T>(sum);  // as stored: the backward pass sees the rounded sum
      store_pack(call.residual.row(r) + c, in[p]);
    }
    const auto value = widen(in[p]);
#pragma unroll
    for (int i = 0; i < width; ++i) squares = std::fma(value.at[i], value.at[i], squares);
  }
  squares = group_sum<Shape::group>(squares, shared);
  if (!active) return;
  const S inverse = S{1} / std::sqrt(squares / static_cast<S>(call.cols) + call.eps);
  if (me.lane == 0) call.rstd[r] = inverse;
#pragma unroll
  for (int p = 0; p < Shape::packs; ++p) {
    const int c = (p * Shape::group + me.lane) * width;
    if (c >= call.cols) continue;
    auto value = widen(in[p]);
    const auto w = widen(load_pack<width>(call.weight + c));
#pragma unroll
    for (int i = 0; i < width; ++i) value.at[i] = value.at[i] * inverse * w.at[i];
    store_pack(call.y.row(r) + c, narrow<T>(value));
  }
}

/// Any width and alignment: one block a row.
template <class T>
__global__ void __launch_bounds__(block_threads) rms_forward_any(const Forward<T> call) {
  using S = StatsType<T>;
  __shared__ S shared[block_threads / warp];
  const std::int64_t r = blockIdx.x;
  const T* in = call.x.row(r);
  S squares{0};
  for (std::int64_t c = threadIdx.x; c < call.cols; c += block_threads) {
    T value = in[c];
    if (call.delta) {
      store(value, load(in[c]) + load(call.delta.row(r)[c]));
      call.residual.row(r)[c] = value;
    }
    squares = std::fma(load(value), load(value), squares);
  }
  if (call.delta) in = call.residual.row(r);  // each thread reads what it wrote
  squares = group_sum<block_threads>(squares, shared);
  const S inverse = S{1} / std::sqrt(squares / static_cast<S>(call.cols) + call.eps);
  if (threadIdx.x == 0) call.rstd[r] = inverse;
  for (std::int64_t c = threadIdx.x; c < call.cols; c += block_threads) {
    store(call.y.row(r)[c], load(in[c]) * inverse * load(call.weight[c]));
  }
}

/// d_x = d_residual + rstd (w d_y - x rstd^2 mean(w d_y x)), d_w += d_y x rstd.
template <class T>
struct Backward {
  using S = StatsType<T>;
  NormRows<T> d_x, d_residual, d_y, x;
  const T* weight;
  const S* rstd;
  S* partials;  ///< [blocks, cols]
  std::int64_t rows, cols;
};

template <class T, class Shape>
__global__ void __launch_bounds__(block_threads) rms_backward(const Backward<T> call) {
  using S = StatsType<T>;
  constexpr int width = full_width<T>;
  __shared__ S shared[Shape::packs * Shape::group * width];
  const RowThread<Shape> me;
  Values<S, width> d_weight[Shape::packs] = {};
  const RowRange range = row_range(call.rows);
  for (std::int64_t first = range.begin; first < range.end; first += Shape::rows) {
    const std::int64_t r = first + me.group;
    const bool active = r < range.end;
    const S inverse = active ? call.rstd[r] : S{0};
    RowGradients<T, Shape> row;
    if (active) row.load(call, r, me.lane);
    S dot{0};
#pragma unroll
    for (int p = 0; p < Shape::packs; ++p) {
      const int c = (p * Shape::group + me.lane) * width;
      if (!active || c >= call.cols) continue;
      const auto v = widen(row.x[p]), g = widen(row.d_y[p]), w = widen(load_pack<width>(call.weight + c));
#pragma unroll
      for (int i = 0; i < width; ++i) {
        dot = std::fma(w.at[i] * g.at[i], v.at[i], dot);
        d_weight[p].at[i] = std::fma(g.at[i], v.at[i] * inverse, d_weight[p].at[i]);
      }
    }
    dot = group_sum<Shape::group>(dot, shared);
    const S along = inverse * inverse * inverse * dot / static_cast<S>(call.cols);
#pragma unroll
    for (int p = 0; p < Shape::packs; ++p) {
      const int c = (p * Shape::group + me.lane) * width;
      if (!active || c >= call.cols) continue;
      const auto v = widen(row.x[p]), g = widen(row.d_y[p]), w = widen(load_pack<width>(call.weight + c));
      Values<S, width> dx;
#pragma unroll
      for (int i = 0; i < width; ++i) dx.at[i] = std::fma(inverse * w.at[i], g.at[i], -along * v.at[i]);
      if (call.d_residual) {
        const auto d = widen(row.through[p]);
#pragma unroll
        for (int i = 0; i < width; ++i) dx.at[i] += d.at[i];
      }
      store_pack(call.d_x.row(r) + c, narrow<T>(dx));
    }
  }
  store_row_sums<Shape, width>(call.partials + blockIdx.x * call.cols, d_weight, call.cols, shared);
}

/// Any width and alignment: a block works on its rows one by one, its thread's columns are added up in memory.
template <class T>
__global__ void __launch_bounds__(block_threads) rms_backward_any(const Backward<T> call) {
  using S = StatsType<T>;
  __shared__ S shared[block_threads / warp];
  S* const partial = call.partials + blockIdx.x * call.cols;
  for (std::int64_t c = threadIdx.x; c < call.cols; c += block_threads) partial[c] = 0;
  const RowRange range = row_range(call.rows);
  for (std::int64_t r = range.begin; r < range.end; ++r) {
    const T *const in = call.x.row(r), *const dy = call.d_y.row(r);
    S dot{0};
    for (std::int64_t c = threadIdx.x; c < call.cols; c += block_threads) {
      dot = std::fma(load(call.weight[c]) * load(dy[c]), load(in[c]), dot);
    }
    dot = group_sum<block_threads>(dot, shared);
    const S inverse = call.rstd[r], along = inverse * inverse * inverse * dot / static_cast<S>(call.cols);
    for (std::int64_t c = threadIdx.x; c < call.cols; c += block_threads) {
      const S g = load(dy[c]), v = load(in[c]), incoming = call.d_residual ? load(call.d_residual.row(r)[c]) : S{0};
      partial[c] = std::fma(g, v * inverse, partial[c]);
      store(call.d_x.row(r)[c], incoming + std::fma(inverse * load(call.weight[c]), g, -along * v));
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
    const Forward<T> call{{y, cols}, {residual, cols},   {x, cols}, {delta, cols}, weight.ptr<T>(), rstd.ptr<S>(), rows,
                          cols,      static_cast<S>(eps)};
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
    const Backward<T> call{{d_x, cols},   {d_residual, cols}, {d_y, cols}, {x, cols}, weight.ptr<T>(),
                           rstd.ptr<S>(), partials,           rows,        cols};
    const Tensor flat = weight.reshaped({1, cols});
    if (blocks > 0) {
      dispatch_row<T>(cols, rows_are_packed<T>({d_x, d_residual, d_y, x, flat}, cols), [&]<class Shape>(Shape) {
        const auto grid = static_cast<unsigned>(blocks);
        if constexpr (Shape::packs == 0) {
          rms_backward_any<<<grid, block_threads, 0, streams_[s]>>>(call);
        } else {
          rms_backward<T, Shape><<<grid, block_threads, 0, streams_[s]>>>(call);
        }
      });
      check_launch("rms_norm_backward");
    }
    add_partial_sums(streams_[s], d_weight, partials, cols, blocks, write);
  });
}

}  // namespace llmtrain
