// SPDX-License-Identifier: Apache-2.0
/// The gated activation silu(gate) * up and its gradient, on the CPU.
#include "common/math.hpp"
#include "cpu/cpu_kernels.hpp"
#include "cpu/loops.hpp"

namespace llmtrain {

void CpuKernels::do_swiglu_forward(Stream, Tensor out, Tensor gate_up) {
  dispatch("swiglu_forward", out.dtype, [&]<class T>(T) {
    const Matrix<T> to(out), from(gate_up);
    const std::int64_t rows = out.rows(), n = out.cols();
#pragma omp parallel for schedule(static) if (rows * n >= parallel_threshold)
    for (std::int64_t t = 0; t < rows; ++t) {
      T* const y = to.row(t);
      const T *const gate = from.row(t), *const up = gate + n;
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c) store(y[c], silu(load(gate[c])) * load(up[c]));
    }
  });
}

void CpuKernels::do_swiglu_backward(Stream, Tensor d_gate_up, Tensor d_out, Tensor gate_up) {
  dispatch("swiglu_backward", d_out.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    const Matrix<T> to(d_gate_up), dy(d_out), from(gate_up);
    const std::int64_t rows = d_out.rows(), n = d_out.cols();
#pragma omp parallel for schedule(static) if (rows * n >= parallel_threshold)
    for (std::int64_t t = 0; t < rows; ++t) {
      T *const d_gate = to.row(t), *const d_up = d_gate + n;  // may be gate and up themselves
      const T *const gate = from.row(t), *const up = gate + n, *const d = dy.row(t);
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c) {
        S g, u;
        swiglu_gradient<S>(load(d[c]), load(gate[c]), load(up[c]), g, u);
        store(d_gate[c], g);
        store(d_up[c], u);
      }
    }
  });
}

}  // namespace llmtrain
