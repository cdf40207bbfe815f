// SPDX-License-Identifier: Apache-2.0
/// LayerNorm with the residual sum in front of it, and its gradient, on the GPU.
#include <cmath>

#include "cuda/cuda_kernels.hpp"
#include "cuda/norm.cuh"

namespace llmtrain {

namespace {

template <class T>
struct Forward {
  using S = StatsType<T>;
  NormRows<T> y, residual, x, delta;
  const T *weight, *bias;
  S *mean, *rstd;
  std::int64_t rows, cols;
  S eps;
};

template <class T, class Shape>
__global__ void __launch_bounds__(block_threads) layer_forward(const Forward<T> call) {
  using S = StatsType<T>;
  constexpr int width = full_width<T>;
  __shared__ S shared[block_threads / warp];
  const RowThread<Shape> me;
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * Shape::rows + me.group;
  const bool active = r < call.rows;
  Pack<T, width> in[Shape::packs];
  S sum{0}, squares{0};
#pragma unroll
  for (int p = 0; p < Shape::packs; ++p) {
    const int c = (p * Shape::group + me.lane) * width;
    if (!active || c >= call.cols) continue;
    in[p] = load_pack<width>(call.x.row(r) + c);
    auto value = widen(in[p]);
    if (call.delta) {
      const auto term = widen(load_pack<width>(call.delta.row(r) + c));
#pragma unroll
      for (int i = 0; i < width; ++i) value.at[i] += term.at[i];
      in[p] = narrow<T>(value);  // as stored: the backward pass sees the rounded sum
      store_pack(call.residual.row(r) + c, in[p]);
      value = widen(in[p]);
    }
#pragma unroll
    for (int i = 0; i < width; ++i) sum += value.at[i];
  }
  const S mean = group_sum<Shape::group>(sum, shared) / static_cast<S>(call.cols);
#pragma unroll
  for (int p = 0; p < Shape::packs; ++p) {
    const int c = (p * Shape::group + me.lane) * width;
    if (!active || c >= call.cols) continue;
    const auto value = widen(in[p]);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const S d = value.at[i] - mean;
      squares = std::fma(d, d, squares);
    }
  }
  squares = group_sum<Shape::group>(squares, shared);
  if (!active) return;
  const S inverse = S{1} / std::sqrt(squares / static_cast<S>(call.cols) + call.eps);
  if (me.lane == 0) {
    call.mean[r] = mean;
    call.rstd[r] = inverse;
  }
#pragma unroll
  for (int p = 0; p < Shape::packs; ++p) {
    const int c = (p * Shape::group + me.lane) * width;
    if (c >= call.cols) continue;
    auto value = widen(in[p]);
    const auto w = widen(load_pack<width>(call.weight + c)), offset = widen(load_pack<width>(call.bias + c));
#pragma unroll
    for (int i = 0; i < width; ++i) value.at[i] = std::fma((value.at[i] - mean) * inverse, w.at[i], offset.at[i]);
    store_pack(call.y.row(r) + c, narrow<T>(value));
  }
}

/// Any width and alignment: one block a row.
template <class T>
__global__ void __launch_bounds__(block_threads) layer_forward_any(const Forward<T> call) {
  using S = StatsType<T>;
  __shared__ S shared[block_threads / warp];
  const std::int64_t r = blockIdx.x;
  const T* in = call.x.row(r);
  S sum{0}, squares{0};
  for (std::int64_t c = threadIdx.x; c < call.cols; c += block_threads) {
    T value = in[c];
    if (call.delta) {
      store(value, load(in[c]) + load(call.delta.row(r)[c]));
      call.residual.row(r)[c] = value;
    }
    sum += load(value);
  }
  if (call.delta) in = call.residual.row(r);  // each thread reads what it wrote
  const S mean = group_sum<block_threads>(sum, shared) / static_cast<S>(call.cols);
  for (std::int64_t c = threadIdx.x; c < call.cols; c += block_threads) {
    const S d = load(in[c]) - mean;
    squares = std::fma(d, d, squares);
  }
  squares = group_sum<block_threads>(squares, shared);
  const S inverse = S{1} / std::sqrt(squares / static_cast<S>(call.cols) + call.eps);
  if (threadIdx.x == 0) {
    call.mean[r] = mean;
    call.rstd[r] = inverse;
  }
  for (std::int64_t c = threadIdx.x; c < call.cols; c += block_threads) {
    store(call.y.row(r)[c], std::fma((load(in[c]) - mean) * inverse, load(call.weight[c]), load(call.bias[c])));
  }
}

/// With n = (x - mean) rstd and g = w d_y: d_x = d_residual + rstd (g - mean(g) - n mean(g n)), d_w += d_y n,
/// d_b += d_y.
template <class T>
struct Backward {
  using S = StatsType<T>;
  NormRows<T> d_x, d_residual, d_y, x;
  const T* weight;
  const S *mean, *rstd;
  S* partials;  ///< [blocks, 2, cols]
  std::int64_t rows, cols;
};

template <class T, class Shape>
__global__ void __launch_bounds__(block_threads) layer_backward(const Backward<T> call) {
  using S = StatsType<T>;
  constexpr int width = full_width<T>;
  __shared__ S shared[Shape::packs * Shape::group * width];
  const RowThread<Shape> me;
  Values<S, width> d_weight[Shape::packs] = {}, d_bias[Shape::packs] = {};
  const RowRange range = row_range(call.rows);
  const S count = static_cast<S>(call.cols);
  for (std::int64_t first = range.begin; first < range.end; first += Shape::rows) {
    const std::int64_t r = first + me.group;
    const bool active = r < range.end;
    const S mean = active ? call.mean[r] : S{0}, inverse = active ? call.rstd[r] : S{0};
    RowGradients<T, Shape> row;
    if (active) row.load(call, r, me.lane);
    S sum{0}, dot{0};
#pragma unroll
    for (int p = 0; p < Shape::packs; ++p) {
      const int c = (p * Shape::group + me.lane) * width;
      if (!active || c >= call.cols) continue;
      const auto v = widen(row.x[p]), g = widen(row.d_y[p]), w = widen(load_pack<width>(call.weight + c));
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const S d = v.at[i] - mean, through_w = w.at[i] * g.at[i];
        sum += through_w;
        dot = std::fma(through_w, d, dot);
        d_weight[p].at[i] = std::fma(g.at[i], d * inverse, d_weight[p].at[i]);
        d_bias[p].at[i] += g.at[i];
      }
    }
    const S constant = group_sum<Shape::group>(sum, shared) / count;
    const S along = inverse * inverse * group_sum<Shape::group>(dot, shared) / count;
#pragma unroll
    for (int p = 0; p < Shape::packs; ++p) {
      const int c = (p * Shape::group + me.lane) * width;
      if (!active || c >= call.cols) continue;
      const auto v = widen(row.x[p]), g = widen(row.d_y[p]), w = widen(load_pack<width>(call.weight + c));
      Values<S, width> dx;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        dx.at[i] = inverse * (std::fma(w.at[i], g.at[i], -constant) - along * (v.at[i] - mean));
      }
      if (call.d_residual) {
        const auto d = widen(row.through[p]);
#pragma unroll
        for (int i = 0; i < width; ++i) dx.at[i] += d.at[i];
      }
      store_pack(call.d_x.row(r) + c, narrow<T>(dx));
    }
  }
  S* const partial = call.partials + 2 * blockIdx.x * call.cols;
  store_row_sums<Shape, width>(partial, d_weight, call.cols, shared);
  store_row_sums<Shape, width>(partial + call.cols, d_bias, call.cols, shared);
}

/// Any width and alignment: a block works on its rows one by one, its thread's columns are added up in memory.
template <class T>
__global__ void __launch_bounds__(block_threads) layer_backward_any(const Backward<T> call) {
  using S = StatsType<T>;
  __shared__ S shared[block_threads / warp];
  S *const partial_w = call.partials + 2 * blockIdx.x * call.cols, *const partial_b = partial_w + call.cols;
  for (std::int64_t c = threadIdx.x; c < call.cols; c += block_threads) partial_w[c] = partial_b[c] = 0;
  const RowRange range = row_range(call.rows);
  const S count = static_cast<S>(call.cols);
  for (std::int64_t r = range.begin; r < range.end; ++r) {
    const T *const in = call.x.row(r), *const dy = call.d_y.row(r);
    const S mean = call.mean[r], inverse = call.rstd[r];
    S sum{0}, dot{0};
    for (std::int64_t c = threadIdx.x; c < call.cols; c += block_threads) {
      const S g = load(call.weight[c]) * load(dy[c]);
      sum += g;
      dot = std::fma(g, load(in[c]) - mean, dot);
    }
    const S constant = group_sum<block_threads>(sum, shared) / count;
    const S along = inverse * inverse * group_sum<block_threads>(dot, shared) / count;
    for (std::int64_t c = threadIdx.x; c < call.cols; c += block_threads) {
      const S g = load(dy[c]), d = load(in[c]) - mean;
      const S incoming = call.d_residual ? load(call.d_residual.row(r)[c]) : S{0};
      partial_w[c] = std::fma(g, d * inverse, partial_w[c]);
      partial_b[c] += g;
      store(call.d_x.row(r)[c], incoming + inverse * (std::fma(load(call.weight[c]), g, -constant) - along * d));
    }
  }
}

}  // namespace

void CudaKernels::do_layer_norm_forward(Stream s, Tensor y, Tensor residual, Tensor mean, Tensor rstd, Tensor x,
                                        Tensor delta, Tensor weight, Tensor bias, double eps) {
  const std::int64_t rows = x.rows(), cols = x.cols();
  if (rows == 0) return;
  dispatch("layer_norm_forward", x.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    if (!delta) residual = {};
    const Forward<T> call{{y, cols},     {residual, cols}, {x, cols}, {delta, cols}, weight.ptr<T>(),    bias.ptr<T>(),
                          mean.ptr<S>(), rstd.ptr<S>(),    rows,      cols,          static_cast<S>(eps)};
    const Tensor w = weight.reshaped({1, cols}), b = bias.reshaped({1, cols});
    dispatch_row<T>(cols, rows_are_packed<T>({y, residual, x, delta, w, b}, cols), [&]<class Shape>(Shape) {
      if constexpr (Shape::packs == 0) {
        layer_forward_any<<<static_cast<unsigned>(rows), block_threads, 0, streams_[s]>>>(call);
      } else {
        const auto blocks = static_cast<unsigned>((rows + Shape::rows - 1) / Shape::rows);
        layer_forward<T, Shape><<<blocks, block_threads, 0, streams_[s]>>>(call);
      }
    });
    check_launch("layer_norm_forward");
  });
}

void CudaKernels::do_layer_norm_backward(Stream s, Tensor d_x, Tensor d_weight, Tensor d_bias, Tensor d_residual,
                                         Tensor d_y, Tensor x, Tensor mean, Tensor rstd, Tensor weight, Write write,
                                         Tensor workspace) {
  const std::int64_t rows = x.rows(), cols = x.cols();
  const std::int64_t needed = layer_norm_backward_workspace(DeviceKind::cuda, rows, cols, rstd.dtype);
  require(workspace.numel() >= needed, ExitCode::internal,
          "internal error: layer_norm_backward on {} needs {} bytes of workspace, has {}", x.describe(), needed,
          workspace.numel());
  dispatch("layer_norm_backward", x.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    S* const partials = static_cast<S*>(workspace.data);
    const std::int64_t step = 2 * cols;
    const std::int64_t blocks = needed / (std::max<std::int64_t>(step, 1) * static_cast<std::int64_t>(sizeof(S)));
    const Backward<T> call{{d_x, cols},   {d_residual, cols}, {d_y, cols}, {x, cols}, weight.ptr<T>(),
                           mean.ptr<S>(), rstd.ptr<S>(),      partials,    rows,      cols};
    const Tensor w = weight.reshaped({1, cols});
    if (blocks > 0) {
      dispatch_row<T>(cols, rows_are_packed<T>({d_x, d_residual, d_y, x, w}, cols), [&]<class Shape>(Shape) {
        const auto grid = static_cast<unsigned>(blocks);
        if constexpr (Shape::packs == 0) {
          layer_backward_any<<<grid, block_threads, 0, streams_[s]>>>(call);
        } else {
          layer_backward<T, Shape><<<grid, block_threads, 0, streams_[s]>>>(call);
        }
      });
      check_launch("layer_norm_backward");
    }
    add_partial_sums(streams_[s], d_weight, partials, step, blocks, write);
    add_partial_sums(streams_[s], d_bias, partials + cols, step, blocks, write);
  });
}

}  // namespace llmtrain
