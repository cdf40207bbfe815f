// SPDX-License-Identifier: Apache-2.0
/// The gated activation silu(gate) * up and its gradient, on the GPU.
#include "common/math.hpp"
#include "cuda/cuda_kernels.hpp"
#include "cuda/loops.cuh"

namespace llmtrain {

namespace {

template <class T>
struct Forward {
  template <int width>
  struct Body {
    Matrix<T> out, gate, up;
    __device__ void operator()(std::int64_t r, std::int64_t c) const {
      const auto g = gate.template values<width>(r, c);
      auto y = up.template values<width>(r, c);
#pragma unroll
      for (int i = 0; i < width; ++i) y.at[i] = silu(g.at[i]) * y.at[i];
      out.put(r, c, y);
    }
  };
};

template <class T>
struct Backward {
  template <int width>
  struct Body {
    Matrix<T> d_gate, d_up, d_out, gate, up;  // the first two may be the last two
    __device__ void operator()(std::int64_t r, std::int64_t c) const {
      const auto d = d_out.template values<width>(r, c);
      auto g = gate.template values<width>(r, c);
      auto u = up.template values<width>(r, c);
#pragma unroll
      for (int i = 0; i < width; ++i) swiglu_gradient(d.at[i], g.at[i], u.at[i], g.at[i], u.at[i]);
      d_gate.put(r, c, g);
      d_up.put(r, c, u);
    }
  };
};

/// The two halves [gate | up] of a [tokens, 2 n] tensor.
Tensor half(const Tensor& pair, int which) {
  const std::int64_t n = pair.cols() / 2;
  return pair.cols_at(which * n, n);
}

}  // namespace

void CudaKernels::do_swiglu_forward(Stream s, Tensor out, Tensor gate_up) {
  dispatch("swiglu_forward", out.dtype, [&]<class T>(T) {
    const Tensor gate = half(gate_up, 0), up = half(gate_up, 1);
    for_columns<Forward<T>::template Body, full_width<T>>(streams_[s], "swiglu_forward", {out, gate, up}, {},
                                                          Matrix<T>(out), Matrix<T>(gate), Matrix<T>(up));
  });
}

void CudaKernels::do_swiglu_backward(Stream s, Tensor d_gate_up, Tensor d_out, Tensor gate_up) {
  dispatch("swiglu_backward", d_out.dtype, [&]<class T>(T) {
    const Tensor d_gate = half(d_gate_up, 0), d_up = half(d_gate_up, 1), gate = half(gate_up, 0), up = half(gate_up, 1);
    for_columns<Backward<T>::template Body, full_width<T>>(
        streams_[s], "swiglu_backward", {d_out, d_gate, d_up, gate, up}, {}, Matrix<T>(d_gate), Matrix<T>(d_up),
        Matrix<T>(d_out), Matrix<T>(gate), Matrix<T>(up));
  });
}

}  // namespace llmtrain
