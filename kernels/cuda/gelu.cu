// SPDX-License-Identifier: Apache-2.0
/// GeLU, biases and their gradients, on the GPU.
#include "common/math.hpp"
#include "cuda/cuda_kernels.hpp"
#include "cuda/partial_sums.cuh"

namespace llmtrain {

namespace {

template <class T>
struct BiasAdd {
  template <int width>
  struct Body {
    Matrix<T> out, x, bias;
    __device__ void operator()(std::int64_t r, std::int64_t c) const {
      auto y = x.template values<width>(r, c);
      const auto offset = bias.template values<width>(0, c);
#pragma unroll
      for (int i = 0; i < width; ++i) y.at[i] += offset.at[i];
      out.put(r, c, y);
    }
  };
};

template <class T, Gelu form>
struct Forward {
  template <int width>
  struct Body {
    Matrix<T> out, x;
    __device__ void operator()(std::int64_t r, std::int64_t c) const {
      auto y = x.template values<width>(r, c);
#pragma unroll
      for (int i = 0; i < width; ++i) y.at[i] = form == Gelu::tanh ? gelu_tanh(y.at[i]) : gelu_exact(y.at[i]);
      out.put(r, c, y);
    }
  };
};

template <class T, Gelu form>
struct Backward {
  template <int width>
  struct Body {
    Matrix<T> d_x, d_out, x;
    __device__ void operator()(std::int64_t r, std::int64_t c) const {
      const auto d = d_out.template values<width>(r, c);
      auto y = x.template values<width>(r, c);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        y.at[i] = d.at[i] * (form == Gelu::tanh ? gelu_tanh_derivative(y.at[i]) : gelu_exact_derivative(y.at[i]));
      }
      d_x.put(r, c, y);
    }
  };
};

/// Calls f<form>().
template <class F>
void dispatch_form(Gelu form, F&& f) {
  if (form == Gelu::tanh) return f.template operator()<Gelu::tanh>();
  f.template operator()<Gelu::exact>();
}

/// Columns of a block of bias_gradient: `column_lanes` threads with one pack each; the other threads take other rows.
constexpr int column_lanes = 32;
constexpr int row_lanes = block_threads / column_lanes;

/// partials [blocks of rows, cols] = sums of d_out's rows, block b of them at blockIdx.y = b.
template <class T, int width>
__global__ void __launch_bounds__(block_threads)
    column_sums(StatsType<T>* partials, Matrix<T> d_out, std::int64_t rows, std::int64_t cols) {
  using S = StatsType<T>;
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * column_lanes + threadIdx.x) * width;
  const std::int64_t begin = rows * blockIdx.y / gridDim.y, end = rows * (blockIdx.y + 1) / gridDim.y;
  Values<S, width> sum{};
  if (c < cols) {
#pragma unroll 4
    for (std::int64_t r = begin + threadIdx.y; r < end; r += row_lanes) {
      const auto term = d_out.template values<width>(r, c);
#pragma unroll
      for (int i = 0; i < width; ++i) sum.at[i] += term.at[i];
    }
  }
  let_sums_follow();
  __shared__ Values<S, width> sums[row_lanes][column_lanes];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= cols) return;
  for (int lane = 1; lane < row_lanes; ++lane) {
#pragma unroll
    for (int i = 0; i < width; ++i) sum.at[i] += sums[lane][threadIdx.x].at[i];
  }
#pragma unroll
  for (int i = 0; i < width; ++i) partials[blockIdx.y * cols + c + i] = sum.at[i];
}

}  // namespace

void CudaKernels::do_gelu_forward(Stream s, Tensor out, Tensor x, Gelu form) {
  dispatch("gelu_forward", x.dtype, [&]<class T>(T) {
    dispatch_form(form, [&]<Gelu f>() {
      for_elements<Forward<T, f>::template Body, full_width<T>>(streams_[s], "gelu_forward", {out, x}, Matrix<T>(out),
                                                                Matrix<T>(x));
    });
  });
}

void CudaKernels::do_gelu_backward(Stream s, Tensor d_x, Tensor d_out, Tensor x, Gelu form) {
  dispatch("gelu_backward", x.dtype, [&]<class T>(T) {
    dispatch_form(form, [&]<Gelu f>() {
      for_elements<Backward<T, f>::template Body, full_width<T>>(streams_[s], "gelu_backward", {d_x, d_out, x},
                                                                 Matrix<T>(d_x), Matrix<T>(d_out), Matrix<T>(x));
    });
  });
}

void CudaKernels::do_bias_add(Stream s, Tensor out, Tensor x, Tensor bias) {
  dispatch("bias_add", x.dtype, [&]<class T>(T) {
    for_columns<BiasAdd<T>::template Body, full_width<T>>(streams_[s], "bias_add", {out, x}, {bias}, Matrix<T>(out),
                                                          Matrix<T>(x), Matrix<T>(bias));
  });
}

void CudaKernels::do_bias_gradient(Stream s, Tensor d_bias, Tensor d_out, Write write) {
  const std::int64_t rows = d_out.rows(), cols = d_out.cols();
  if (cols == 0) return;
  dispatch("bias_gradient", d_out.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    constexpr int full = full_width<T>;
    const bool packed = is_packed({d_out}, full);
    const std::int64_t a_block = column_lanes * (packed ? full : 1), x = (cols + a_block - 1) / a_block;
    // Blocks of rows: enough to fill the device, and a function of the sizes alone.
    const std::int64_t y = std::clamp<std::int64_t>(rows / (4 * row_lanes), 1, std::max<std::int64_t>(1, 1024 / x));
    auto* const partials = static_cast<S*>(partial_sums(y * cols * static_cast<std::int64_t>(sizeof(S))));
    const dim3 blocks(static_cast<unsigned>(x), static_cast<unsigned>(y)), threads(column_lanes, row_lanes);
    if (packed) {
      column_sums<T, full><<<blocks, threads, 0, streams_[s]>>>(partials, Matrix<T>(d_out), rows, cols);
    } else {
      column_sums<T, 1><<<blocks, threads, 0, streams_[s]>>>(partials, Matrix<T>(d_out), rows, cols);
    }
    check_launch("bias_gradient");
    add_partial_sums(streams_[s], {d_bias}, partials, y, write);
  });
}

}  // namespace llmtrain
