// SPDX-License-Identifier: Apache-2.0
/// GeLU, biases and their gradients, on the CPU.
#include "common/math.hpp"
#include "cpu/cpu_kernels.hpp"
#include "cpu/loops.hpp"

namespace llmtrain {

namespace {

/// Calls f with what GeLU, or its derivative, is of one element.
template <class S, class F>
void with_gelu(Gelu form, F&& f) {
  if (form == Gelu::tanh) return f([](S x) { return gelu_tanh(x); });
  f([](S x) { return gelu_exact(x); });
}
template <class S, class F>
void with_derivative(Gelu form, F&& f) {
  if (form == Gelu::tanh) return f([](S x) { return gelu_tanh_derivative(x); });
  f([](S x) { return gelu_exact_derivative(x); });
}

}  // namespace

void CpuKernels::do_gelu_forward(Stream, Tensor out, Tensor x, Gelu form) {
  dispatch("gelu_forward", x.dtype, [&]<class T>(T) {
    const Matrix<T> to(out), from(x);
    with_gelu<StatsType<T>>(form, [&](auto gelu) {
      for_blocks({out, x}, [&](std::int64_t r, std::int64_t begin, std::int64_t end) {
        T* const y = to.row(r);
        const T* const in = from.row(r);
#pragma omp simd
        for (std::int64_t c = begin; c < end; ++c) store(y[c], gelu(load(in[c])));
      });
    });
  });
}

void CpuKernels::do_gelu_backward(Stream, Tensor d_x, Tensor d_out, Tensor x, Gelu form) {
  dispatch("gelu_backward", x.dtype, [&]<class T>(T) {
    const Matrix<T> to(d_x), dy(d_out), from(x);
    with_derivative<StatsType<T>>(form, [&](auto derivative) {
      for_blocks({d_x, d_out, x}, [&](std::int64_t r, std::int64_t begin, std::int64_t end) {
        T* const dx = to.row(r);
        const T *const d = dy.row(r), *const in = from.row(r);
#pragma omp simd
        for (std::int64_t c = begin; c < end; ++c) store(dx[c], load(d[c]) * derivative(load(in[c])));
      });
    });
  });
}

void CpuKernels::do_bias_add(Stream, Tensor out, Tensor x, Tensor bias) {
  dispatch("bias_add", x.dtype, [&]<class T>(T) {
    const Matrix<T> to(out), from(x);
    const T* const offset = bias.ptr<T>();
#pragma omp parallel for schedule(static) if (from.rows * from.cols >= parallel_threshold)
    for (std::int64_t t = 0; t < from.rows; ++t) {
      T* const y = to.row(t);
      const T* const in = from.row(t);
#pragma omp simd
      for (std::int64_t c = 0; c < from.cols; ++c) store(y[c], load(in[c]) + load(offset[c]));
    }
  });
}

void CpuKernels::do_bias_gradient(Stream, Tensor d_bias, Tensor d_out, Write write) {
  constexpr std::int64_t width = 64;   // columns of a task
  constexpr std::int64_t height = 64;  // rows summed apart, which keeps the rounding error of long sums down
  dispatch("bias_gradient", d_out.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    const Matrix<T> from(d_out);
    dispatch_stored<S>("gradients of a bias", d_bias.dtype, [&]<class G>(G) {
      G* const total = d_bias.ptr<G>();
#pragma omp parallel for schedule(static) if (from.rows * from.cols >= parallel_threshold)
      for (std::int64_t begin = 0; begin < from.cols; begin += width) {
        const std::int64_t n = std::min(width, from.cols - begin);
        S sums[width] = {};
        for (std::int64_t first = 0; first < from.rows; first += height) {
          S partial[width] = {};
          for (std::int64_t t = first; t < std::min(from.rows, first + height); ++t) {
            const T* const row = from.row(t) + begin;
#pragma omp simd
            for (std::int64_t c = 0; c < n; ++c) partial[c] += load(row[c]);
          }
          for (std::int64_t c = 0; c < n; ++c) sums[c] += partial[c];
        }
        for (std::int64_t c = 0; c < n; ++c) {
          G& element = total[begin + c];
          store(element, write == Write::accumulate ? load(element) + sums[c] : sums[c]);
        }
      }
    });
  });
}

}  // namespace llmtrain
