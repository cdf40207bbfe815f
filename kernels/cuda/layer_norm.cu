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
  const int cols = call.rows.cols;
  const RowPacks<T, Shape> in = load_normalised<T, Shape>(call, r);
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
  T* const y = call.rows.row_of(call.y, r);
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

template <class T, class Batch>
__global__ void __launch_bounds__(Batch::threads, Batch::blocks) layer_backward(const Backward<T> call) {
  using S = StatsType<T>;
  constexpr int width = full_width<T>;
  using Columns = Values<S, width>;
  struct Stats {
    S mean, inverse;
  };
  const int cols = call.rows.cols;
  const BatchThread<T> me(cols);
  Columns weight = {}, gradients[2] = {};  // of weight and bias
  if (me.in_row) weight = widen(load_pack<width>(call.weight + me.column));
  const S share = S{1} / static_cast<S>(cols);
  walk_rows<Batch, 2>(
      call, me,
      [&](std::int64_t r) {
        return Stats{call.mean[r], call.rstd[r]};
      },
      [&](const Columns& x, const Columns& d_y, const Stats& row, S* sums) {  // of g and of g n
#pragma unroll
        for (int i = 0; i < width; ++i) {
          const S n = std::fma(x.at[i], row.inverse, -row.mean * row.inverse), g = weight.at[i] * d_y.at[i];
          sums[0] += g;
          sums[1] = std::fma(g, n, sums[1]);
          gradients[0].at[i] = std::fma(d_y.at[i], n, gradients[0].at[i]);
          gradients[1].at[i] += d_y.at[i];
        }
      },
      [&](const Columns& x, const Columns& d_y, const Columns& d_residual, const Stats& row, const S* sums) {
        // (g - mean(g) - n mean(g n)) as g + x slope + constant
        const S slope = -row.inverse * share * sums[1], constant = -std::fma(row.mean, slope, share * sums[0]);
        Columns d_x;
#pragma unroll
        for (int i = 0; i < width; ++i) {
          const S centred = std::fma(weight.at[i], d_y.at[i], std::fma(x.at[i], slope, constant));
          d_x.at[i] = std::fma(row.inverse, centred, d_residual.at[i]);
        }
        return d_x;
      });
  store_row_sums<T>(call.partials + 2 * blockIdx.x * static_cast<std::int64_t>(cols), cols, gradients, me);
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
      if constexpr (std::is_same_v<Shape, AnyRow>) {
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
      dispatch_batch<T>(cols, rows_are_packed<T>({d_x, d_residual, d_y, x, w}, cols), [&]<class Batch>(Batch) {
        if constexpr (std::is_same_v<Batch, AnyRow>) {
          layer_backward_any<<<static_cast<unsigned>(blocks), block_threads, 0, streams_[s]>>>(call);
        } else {
          launch_walk<T, Batch>(layer_backward<T, Batch>, blocks, streams_[s], call);
        }
      });
      check_launch("layer_norm_backward");
    }
    add_partial_sums(streams_[s], {d_weight, d_bias}, partials, blocks, write);
  });
}

}  // namespace llmtrain
