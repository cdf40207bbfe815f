// SPDX-License-Identifier: Apache-2.0
/// LayerNorm with the residual sum in front of it, and its gradient, on the CPU.
#include <cmath>

#include "cpu/cpu_kernels.hpp"
#include "cpu/norm.hpp"
#include "llmtrain/backend/workspace.hpp"

namespace llmtrain {

void CpuKernels::do_layer_norm_forward(Stream, Tensor y, Tensor residual, Tensor mean, Tensor rstd, Tensor x,
                                       Tensor delta, Tensor weight, Tensor bias, double eps) {
  dispatch("layer_norm_forward", x.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    const Matrix<T> y_m(y), residual_m(residual), x_m(x), delta_m(delta);
    const T *const w = weight.ptr<T>(), *const offset = bias.ptr<T>();
    S *const means = mean.ptr<S>(), *const inverse = rstd.ptr<S>();
    const std::int64_t rows = x.rows(), cols = x.cols();
#pragma omp parallel for schedule(static) if (rows * cols >= parallel_threshold)
    for (std::int64_t t = 0; t < rows; ++t) {
      const T* input = x_m.row(t);
      if (delta_m) {
        const T *const a = x_m.row(t), *const b = delta_m.row(t);
        T* const sum = residual_m.row(t);
#pragma omp simd
        for (std::int64_t c = 0; c < cols; ++c) store(sum[c], load(a[c]) + load(b[c]));
        input = sum;  // as stored: the backward pass sees the rounded sum
      }
      const S m = lane_sum<S>(cols, [&](std::int64_t c) { return load(input[c]); }) / static_cast<S>(cols);
      const S squares = lane_sum<S>(cols, [&](std::int64_t c) {
        const S d = load(input[c]) - m;
        return d * d;
      });
      const S r = S{1} / std::sqrt(squares / static_cast<S>(cols) + static_cast<S>(eps));
      means[t] = m;
      inverse[t] = r;
      T* const out = y_m.row(t);
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) {
        store(out[c], std::fma((load(input[c]) - m) * r, load(w[c]), load(offset[c])));
      }
    }
  });
}

namespace {

template <class T>
struct LayerNormBackward {
  using S = StatsType<T>;
  Matrix<T> d_x, d_residual, d_y, x;
  const T* weight;
  const S* mean;
  const S* rstd;

  /// d_x of one row, and its terms of the gradients of weight and bias added to `partial` [2, cols]. With
  /// n = (x - mean) rstd and g = w d_y: d_x = d_residual + rstd (g - mean(g) - n mean(g n)), d_w += d_y n, d_b += d_y.
  void row(std::int64_t t, S* partial) const {
    const std::int64_t cols = x.cols;
    const T *const dy = d_y.row(t), *const in = x.row(t), *const w = weight;
    const T* const through = d_residual ? d_residual.row(t) : nullptr;
    T* const dx = d_x.row(t);
    S *const partial_w = partial, *const partial_b = partial + cols;
    const S m = mean[t], r = rstd[t], count = static_cast<S>(cols);
    const S sum = lane_sum<S>(cols, [&](std::int64_t c) { return load(w[c]) * load(dy[c]); });
    const S dot = lane_sum<S>(cols, [&](std::int64_t c) { return load(w[c]) * load(dy[c]) * (load(in[c]) - m); });
    const S constant = sum / count, along = r * r * dot / count;
    const auto pass = [&](auto&& incoming) {
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) {
        const S g = load(dy[c]), d = load(in[c]) - m;
        partial_w[c] += g * (d * r);
        partial_b[c] += g;
        store(dx[c], incoming(c) + r * (std::fma(load(w[c]), g, -constant) - along * d));
      }
    };
    if (through != nullptr) {
      pass([&](std::int64_t c) { return load(through[c]); });
    } else {
      pass([](std::int64_t) { return S{0}; });
    }
  }
};

}  // namespace

void CpuKernels::do_layer_norm_backward(Stream, Tensor d_x, Tensor d_weight, Tensor d_bias, Tensor d_residual,
                                        Tensor d_y, Tensor x, Tensor mean, Tensor rstd, Tensor weight, Write write,
                                        Tensor workspace) {
  const std::int64_t rows = x.rows(), cols = x.cols();
  const std::int64_t needed = layer_norm_backward_workspace(DeviceKind::cpu, rows, cols, rstd.dtype);
  require(workspace.numel() >= needed, ExitCode::internal,
          "internal error: layer_norm_backward on {} needs {} bytes of workspace, has {}", x.describe(), needed,
          workspace.numel());
  dispatch("layer_norm_backward", x.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    const LayerNormBackward<T> pass{Matrix<T>(d_x),  Matrix<T>(d_residual), Matrix<T>(d_y), Matrix<T>(x),
                                    weight.ptr<T>(), mean.ptr<S>(),         rstd.ptr<S>()};
    S* const partials = static_cast<S*>(workspace.data);  // [blocks, 2, cols]
    const std::int64_t step = 2 * cols;
    const std::int64_t blocks = needed / (std::max<std::int64_t>(step, 1) * static_cast<std::int64_t>(sizeof(S)));
    const bool parallel = rows * cols >= parallel_threshold;
#pragma omp parallel for schedule(static) if (parallel)
    for (std::int64_t b = 0; b < blocks; ++b) {
      S* const partial = partials + b * step;
      std::fill(partial, partial + step, S{0});
      for (std::int64_t t = rows * b / blocks; t < rows * (b + 1) / blocks; ++t) pass.row(t, partial);
    }
    add_partial_sums(d_weight, partials, step, blocks, write, parallel);
    add_partial_sums(d_bias, partials + cols, step, blocks, write, parallel);
  });
}

}  // namespace llmtrain
