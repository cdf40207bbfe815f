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
  Matrix<T> y, residual, x, delta;
  const T *weight, *bias;
  S *mean, *rstd;
  NormRows rows;
  S eps;
};

template <class T, class Shape>
__global__ void __launch_bounds__(block_threads, forward_blocks<Shape>) layer_forward(const Forward<T> call) {
  using S = StatsType<T>;
  constexpr int width = full_width<T>;
  __shared__ S shared[block_threads / warp];
  const RowThread<Shape> me;
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * Shape::rows + me.group;
  if (r >= call.rows.count) return;
  const NormRows::Place at = call.rows.place(r);
  const int cols = call.rows.cols;
  const RowPacks<T, Shape> in = load_normalised<T, Shape>(call, at);
  S sum{0}, squares{0};
  for_row_packs<T, Shape>(cols, [&](int p, int) {
    const auto value = in.values(p);
#pragma unroll
    for (int i = 0; i < width; ++i) sum += value.at[i];
  });
  const S mean = group_sum<Shape::group>(sum, shared) / static_cast<S>(cols);
  for_row_packs<T, Shape>(cols, [&](int p, int) {
    const auto value = in.values(p);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const S d = value.at[i] - mean;
      squares = std::fma(d, d, squares);
    }
  });
  squares = group_sum<Shape::group>(squares, shared);
  const S inverse = S{1} / std::sqrt(squares / static_cast<S>(cols) + call.eps);
  if (me.lane == 0) {
    call.mean[r] = mean;
    call.rstd[r] = inverse;
  }
  T* const y = call.y.at(at.token, at.column);
  for_row_packs<T, Shape>(cols, [&](int p, int c) {
    auto value = in.values(p);
    const auto w = widen(load_pack<width>(call.weight + c)), offset = widen(load_pack<width>(call.bias + c));
#pragma unroll
    for (int i = 0; i < width; ++i) value.at[i] = std::fma((value.at[i] - mean) * inverse, w.at[i], offset.at[i]);
    store_pack(y + c, narrow<T>(value));
  });
}

/// Any width and alignment: one block a row.
template <class T>
__global__ void __launch_bounds__(block_threads) layer_forward_any(const Forward<T> call) {
  using S = StatsType<T>;
  __shared__ S shared[block_threads / warp];
  const std::int64_t r = blockIdx.x;
  const int cols = call.rows.cols;
  const T* in = call.x.at(r, 0);
  S sum{0}, squares{0};
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) {
    T value = in[c];
    if (call.delta) {
      store(value, load(in[c]) + load(*call.delta.at(r, c)));
      *call.residual.at(r, c) = value;
    }
    sum += load(value);
  }
  if (call.delta) in = call.residual.at(r, 0);  // each thread reads what it wrote
  const S mean = group_sum<block_threads>(sum, shared) / static_cast<S>(cols);
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) {
    const S d = load(in[c]) - mean;
    squares = std::fma(d, d, squares);
  }
  squares = group_sum<block_threads>(squares, shared);
  const S inverse = S{1} / std::sqrt(squares / static_cast<S>(cols) + call.eps);
  if (threadIdx.x == 0) {
    call.mean[r] = mean;
    call.rstd[r] = inverse;
  }
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) {
    store(*call.y.at(r, c), std::fma((load(in[c]) - mean) * inverse, load(call.weight[c]), load(call.bias[c])));
  }
}

/// With n = (x - mean) rstd and g = w d_y: d_x = d_residual + rstd (g - mean(g) - n mean(g n)), d_w += d_y n,
/// d_b += d_y.
template <class T>
struct Backward {
  using S = StatsType<T>;
  Matrix<T> d_x, d_residual, d_y, x;
  const T* weight;
  const S *mean, *rstd;
  S* partials;  ///< [blocks, 2, cols]
  NormRows rows;
};

template <class T, class Shape>
__global__ void __launch_bounds__(block_threads, backward_blocks) layer_backward(const Backward<T> call) {
  using S = StatsType<T>;
  using Ahead = RowsAhead<T, Shape>;
  constexpr int width = full_width<T>;
  extern __shared__ uint4 ahead_memory[];
  __shared__ S shared[2 * block_threads / warp];
  const RowThread<Shape> me;
  const int cols = call.rows.cols;
  Values<S, width> d_weight[Shape::packs] = {}, d_bias[Shape::packs] = {};
  const RowRange range = row_range(call.rows.count);
  const auto of_row = [&](const S* stats, std::int64_t r) { return r < range.end ? stats[r] : S{0}; };
  std::int64_t r = range.begin + me.group;
  Ahead ahead(ahead_memory);
  ahead.ask(call, r, range.end);
  S next_mean = of_row(call.mean, r), next_inverse = of_row(call.rstd, r);
  for (; r < range.end; r += Shape::rows) {
    const S inverse = next_inverse, offset = -next_mean * inverse;
    ahead.ask(call, r + Shape::rows, range.end);
    next_mean = of_row(call.mean, r + Shape::rows);
    next_inverse = of_row(call.rstd, r + Shape::rows);
    ahead.wait();
    S sums[2] = {S{0}, S{0}};  // of g and of g n
    for_row_packs<T, Shape>(cols, [&](int p, int c) {
      const auto v = ahead.read(Ahead::x, p), d_y = ahead.read(Ahead::d_y, p),
                 w = widen(load_pack<width>(call.weight + c));
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const S n = std::fma(v.at[i], inverse, offset), g = w.at[i] * d_y.at[i];
        sums[0] += g;
        sums[1] = std::fma(g, n, sums[1]);
        d_weight[p].at[i] = std::fma(d_y.at[i], n, d_weight[p].at[i]);
        d_bias[p].at[i] += d_y.at[i];
      }
    });
    group_sums<Shape::group>(sums, shared);
    const S scale = inverse / static_cast<S>(cols), constant = -scale * sums[0], along = -scale * sums[1];
    T* const d_x = call.d_x.at(r, 0);
    for_row_packs<T, Shape>(cols, [&](int p, int c) {
      const auto v = ahead.read(Ahead::x, p), d_y = ahead.read(Ahead::d_y, p),
                 w = widen(load_pack<width>(call.weight + c));
      Values<S, width> dx;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const S n = std::fma(v.at[i], inverse, offset);
        dx.at[i] = std::fma(w.at[i] * d_y.at[i], inverse, std::fma(n, along, constant));
      }
      if (call.d_residual) {
        const auto d = ahead.read(Ahead::d_residual, p);
#pragma unroll
        for (int i = 0; i < width; ++i) dx.at[i] += d.at[i];
      }
      store_pack(d_x + c, narrow<T>(dx));
    });
  }
  S* const partial = call.partials + 2 * blockIdx.x * static_cast<std::int64_t>(cols);
  auto* const memory = reinterpret_cast<S*>(ahead_memory);
  store_row_sums<Shape, width>(partial, d_weight, cols, memory);
  store_row_sums<Shape, width>(partial + cols, d_bias, cols, memory);
}

/// Any width and alignment: a block works on its rows one by one, its thread's columns are added up in memory.
template <class T>
__global__ void __launch_bounds__(block_threads) layer_backward_any(const Backward<T> call) {
  using S = StatsType<T>;
  __shared__ S shared[2 * block_threads / warp];
  const int cols = call.rows.cols;
  S *const partial_w = call.partials + 2 * blockIdx.x * static_cast<std::int64_t>(cols), *const partial_b =
                                                                                             partial_w + cols;
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) partial_w[c] = partial_b[c] = 0;
  const RowRange range = row_range(call.rows.count);
  for (std::int64_t r = range.begin; r < range.end; ++r) {
    const T *const in = call.x.at(r, 0), *const dy = call.d_y.at(r, 0);
    const S mean = call.mean[r], inverse = call.rstd[r];
    S sums[2] = {S{0}, S{0}};
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) {
      const S g = load(call.weight[c]) * load(dy[c]);
      sums[0] += g;
      sums[1] = std::fma(g, load(in[c]) - mean, sums[1]);
    }
    group_sums<block_threads>(sums, shared);
    const S constant = sums[0] / static_cast<S>(cols), along = inverse * inverse * sums[1] / static_cast<S>(cols);
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += block_threads) {
      const S g = load(dy[c]), d = load(in[c]) - mean;
      const S incoming = call.d_residual ? load(*call.d_residual.at(r, c)) : S{0};
      partial_w[c] = std::fma(g, d * inverse, partial_w[c]);
      partial_b[c] += g;
      store(*call.d_x.at(r, c), incoming + inverse * (std::fma(load(call.weight[c]), g, -constant) - along * d));
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
    const Forward<T> call{Matrix<T>(y),  Matrix<T>(residual), Matrix<T>(x),  Matrix<T>(delta),  weight.ptr<T>(),
                          bias.ptr<T>(), mean.ptr<S>(),       rstd.ptr<S>(), NormRows(x, cols), static_cast<S>(eps)};
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
    const Backward<T> call{Matrix<T>(d_x), Matrix<T>(d_residual), Matrix<T>(d_y), Matrix<T>(x),     weight.ptr<T>(),
                           mean.ptr<S>(),  rstd.ptr<S>(),         partials,       NormRows(x, cols)};
    const Tensor w = weight.reshaped({1, cols});
    if (blocks > 0) {
      dispatch_row<T>(cols, rows_are_packed<T>({d_x, d_residual, d_y, x, w}, cols), [&]<class Shape>(Shape) {
        if constexpr (Shape::packs == 0) {
          layer_backward_any<<<static_cast<unsigned>(blocks), block_threads, 0, streams_[s]>>>(call);
        } else {
          launch_rows_ahead<T, Shape>(layer_backward<T, Shape>, blocks, streams_[s], call);
        }
      });
      check_launch("layer_norm_backward");
    }
    add_partial_sums(streams_[s], {d_weight, d_bias}, partials, blocks, write);
  });
}

}  // namespace llmtrain
