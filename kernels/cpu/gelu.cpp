// SPDX-License-Identifier: Apache-2.0
/// GeLU with the bias in front of it, its gradient, and biases alone, on the CPU.
#include "common/math.hpp"
#include "cpu/cpu_kernels.hpp"
#include "cpu/loops.hpp"

namespace llmtrain {

namespace {

/// body(t, c, x + bias) over all elements; rows are whole, so that columns know their bias.
template <class T, class Body>
void for_biased(const Tensor& x, const Tensor& bias, Body&& body) {
  const Matrix<T> in(x);
  const T* const offset = bias ? bias.ptr<T>() : nullptr;
#pragma omp parallel for schedule(static) if (in.rows * in.cols >= parallel_threshold)
  for (std::int64_t t = 0; t < in.rows; ++t) {
    const T* const row = in.row(t);
    const auto each = body(t);
    if (offset != nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < in.cols; ++c) each(c, load(row[c]) + load(offset[c]));
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < in.cols; ++c) each(c, load(row[c]));
    }
  }
}

}  // namespace

void CpuKernels::do_gelu_forward(Stream, Tensor out, Tensor x, Tensor bias, Gelu form) {
  dispatch("gelu_forward", x.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    const Matrix<T> to(out);
    const auto run = [&](auto function) {
      for_biased<T>(x, bias, [&](std::int64_t t) {
        return [y = to.row(t), function](std::int64_t c, S value) { store(y[c], function(value)); };
      });
    };
    if (form == Gelu::tanh) {
      run([](S value) { return gelu_tanh(value); });
    } else {
      run([](S value) { return gelu_exact(value); });
    }
  });
}

void CpuKernels::do_gelu_backward(Stream, Tensor d_x, Tensor d_out, Tensor x, Tensor bias, Gelu form) {
  dispatch("gelu_backward", x.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    const Matrix<T> to(d_x), dy(d_out);
    const auto run = [&](auto derivative) {
      for_biased<T>(x, bias, [&](std::int64_t t) {
        return [dx = to.row(t), d = dy.row(t), derivative](std::int64_t c, S value) {
          store(dx[c], load(d[c]) * derivative(value));
        };
      });
    };
    if (form == Gelu::tanh) {
      run([](S value) { return gelu_tanh_derivative(value); });
    } else {
      run([](S value) { return gelu_exact_derivative(value); });
    }
  });
}

void CpuKernels::do_bias_add(Stream, Tensor out, Tensor x, Tensor bias) {
  dispatch("bias_add", x.dtype, [&]<class T>(T) {
    const Matrix<T> to(out);
    for_biased<T>(x, bias, [&](std::int64_t t) {
      return [y = to.row(t)](std::int64_t c, StatsType<T> value) { store(y[c], value); };
    });
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
