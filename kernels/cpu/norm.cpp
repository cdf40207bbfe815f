// SPDX-License-Identifier: Apache-2.0
/// RMSNorm with the residual sum in front of it, and its gradient, on the CPU.
#include <cmath>

#include "cpu/cpu_kernels.hpp"
#include "cpu/norm.hpp"
#include "llmtrain/backend/workspace.hpp"

namespace llmtrain {

void CpuKernels::do_rms_norm_forward(Stream, Tensor y, Tensor residual, Tensor rstd, Tensor x, Tensor delta,
                                     Tensor weight, double eps) {
  dispatch("rms_norm_forward", x.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    const T* const w = weight.ptr<T>();
    S* const inverse = rstd.ptr<S>();
    const std::int64_t cols = weight.numel(), rows = x.numel() / cols;
    const NormRows<T> y_m(y, cols), residual_m(residual, cols), x_m(x, cols), delta_m(delta, cols);
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
      const S squares = lane_sum<S>(cols, [&](std::int64_t c) { return load(input[c]) * load(input[c]); });
      const S r = S{1} / std::sqrt(squares / static_cast<S>(cols) + static_cast<S>(eps));
      inverse[t] = r;
      T* const out = y_m.row(t);
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) store(out[c], load(input[c]) * r * load(w[c]));
    }
  });
}

namespace {

template <class T>
struct NormBackward {
  using S = StatsType<T>;
  NormRows<T> d_x, d_residual, d_y, x;
  const T* weight;
  const S* rstd;

  /// d_x of one row, and its term of the weight gradient added to `partial`:
  /// d_x = d_residual + rstd (w d_y - x rstd^2 mean(w d_y x)), d_w += d_y x rstd.
  void row(std::int64_t t, S* partial) const {
    const std::int64_t cols = x.width;
    const T *const dy = d_y.row(t), *const in = x.row(t), *const w = weight;
    T* const dx = d_x.row(t);
    const S dot = lane_sum<S>(cols, [&](std::int64_t c) { return load(w[c]) * load(dy[c]) * load(in[c]); });
    const S r = rstd[t];
    const S along = r * r * r * dot / static_cast<S>(cols);
    if (d_residual) {
      const T* const through = d_residual.row(t);
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) {
        const S g = load(dy[c]), v = load(in[c]);
        partial[c] += g * (v * r);
        store(dx[c], load(through[c]) + std::fma(r * load(w[c]), g, -along * v));
      }
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) {
        const S g = load(dy[c]), v = load(in[c]);
        partial[c] += g * (v * r);
        store(dx[c], std::fma(r * load(w[c]), g, -along * v));
      }
    }
  }
};

}  // namespace

void CpuKernels::do_rms_norm_backward(Stream, Tensor d_x, Tensor d_weight, Tensor d_residual, Tensor d_y, Tensor x,
                                      Tensor rstd, Tensor weight, Write write, Tensor workspace) {
  const std::int64_t cols = weight.numel(), rows = x.numel() / cols;
  const std::int64_t needed = norm_backward_workspace(DeviceKind::cpu, rows, cols, rstd.dtype);
  require(workspace.numel() >= needed, ExitCode::internal,
          "internal error: rms_norm_backward on {} needs {} bytes of workspace, has {}", x.describe(), needed,
          workspace.numel());
  dispatch("rms_norm_backward", x.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    const NormBackward<T> pass{{d_x, cols}, {d_residual, cols}, {d_y, cols}, {x, cols}, weight.ptr<T>(), rstd.ptr<S>()};
    S* const partials = static_cast<S*>(workspace.data);  // [blocks, cols]
    const std::int64_t blocks = needed / (std::max<std::int64_t>(cols, 1) * static_cast<std::int64_t>(sizeof(S)));
    const bool parallel = rows * cols >= parallel_threshold;
#pragma omp parallel for schedule(static) if (parallel)
    for (std::int64_t b = 0; b < blocks; ++b) {
      S* const partial = partials + b * cols;
      std::fill(partial, partial + cols, S{0});
      for (std::int64_t t = rows * b / blocks; t < rows * (b + 1) / blocks; ++t) pass.row(t, partial);
    }
    add_partial_sums(d_weight, partials, cols, blocks, write, parallel);
  });
}

}  // namespace llmtrain
