// SPDX-License-Identifier: Apache-2.0
/// Sums, conversions, copies and fills on the GPU.
#include <cmath>

#include "cuda/cuda_kernels.hpp"
#include "cuda/loops.cuh"

namespace llmtrain {

namespace {

template <class T>
struct Add {
  template <int width>
  struct Body {
    Matrix<T> out, a, b;
    __device__ void operator()(std::int64_t r, std::int64_t c) const {
      auto sum = a.template values<width>(r, c);
      const auto term = b.template values<width>(r, c);
#pragma unroll
      for (int i = 0; i < width; ++i) sum.at[i] += term.at[i];
      out.put(r, c, sum);
    }
  };
};

template <class Y, class X>
struct SumParts {
  template <int width>
  struct Body {
    Y* out;
    const X* parts[sum_parts_at_once];
    int count;
    bool accumulate;
    __device__ void operator()(std::int64_t, std::int64_t c) const {
      Values<StatsType<Y>, width> sum{};
#pragma unroll 4
      for (int part = 0; part < count; ++part) {
        const auto term = widen(load_pack<width>(parts[part] + c));
#pragma unroll
        for (int i = 0; i < width; ++i) sum.at[i] += static_cast<StatsType<Y>>(term.at[i]);
      }
      if (accumulate) {
        const auto before = widen(load_pack<width>(out + c));
#pragma unroll
        for (int i = 0; i < width; ++i) sum.at[i] += before.at[i];
      }
      store_pack(out + c, narrow<Y>(sum));
    }
  };

  template <int width>
  static void launch(cudaStream_t stream, const Tensor& out, std::span<const Tensor> parts, Write write) {
    Body<width> body{out.ptr<Y>(), {}, static_cast<int>(parts.size()), write == Write::accumulate};
    std::ranges::transform(parts, body.parts, [](const Tensor& part) { return part.ptr<X>(); });
    launch_packs<width>(stream, "sum_parts", 1, out.numel(), body);
  }
};

template <class To, class From>
struct Convert {
  template <int width>
  struct Body {
    Matrix<To> to;
    Matrix<From> from;
    __device__ void operator()(std::int64_t r, std::int64_t c) const {
      store_pack(to.at(r, c), narrow<To>(from.template values<width>(r, c)));  // rounded once
    }
  };
};

template <class T>
struct Fill {
  template <int width>
  struct Body {
    T* out;
    std::int64_t leading;
    T value;
    __device__ void operator()(std::int64_t r, std::int64_t c) const {
      Pack<T, width> pack;
#pragma unroll
      for (int i = 0; i < width; ++i) pack.at[i] = value;
      store_pack(out + r * leading + c, pack);
    }
  };
};

template <class T>
void fill_with(cudaStream_t stream, const Tensor& destination, T value) {
  for_elements<Fill<T>::template Body, full_width<T>>(stream, "fill", {destination}, destination.ptr<T>(),
                                                      destination.leading, value);
}

/// A tensor as a matrix of bytes, for CUDA's own copies; one row where `dense`.
struct Bytes {
  Bytes(const Tensor& t, bool dense)
      : width(static_cast<std::size_t>((dense ? t.numel() : t.cols()) * size_of(t.dtype))),
        height(dense ? 1 : static_cast<std::size_t>(t.rows())),
        pitch(dense ? width : static_cast<std::size_t>(t.leading * size_of(t.dtype))) {}
  std::size_t width, height, pitch;
};

}  // namespace

void CudaKernels::do_add(Stream s, Tensor out, Tensor a, Tensor b) {
  dispatch("add", out.dtype, [&]<class T>(T) {
    for_elements<Add<T>::template Body, full_width<T>>(streams_[s], "add", {out, a, b}, Matrix<T>(out), Matrix<T>(a),
                                                       Matrix<T>(b));
  });
}

void CudaKernels::do_sum_parts(Stream s, Tensor out, std::span<const Tensor> parts, Write write) {
  dispatch("sum_parts", out.dtype, [&]<class Y>(Y) {
    dispatch_stored<StatsType<Y>>("parts of sum_parts", parts[0].dtype, [&]<class X>(X) {
      constexpr int full = std::max(full_width<Y>, full_width<X>);
      const auto packed = [](const Tensor& t) { return is_packed({t.reshaped({1, t.numel()})}, full); };
      const bool all = packed(out) && std::ranges::all_of(parts, packed);
      const auto launch = all ? SumParts<Y, X>::template launch<full> : SumParts<Y, X>::template launch<1>;
      launch(streams_[s], out, parts, write);
    });
  });
}

void CudaKernels::do_convert(Stream s, Tensor destination, Tensor source) {
  dispatch("convert", destination.dtype, [&]<class To>(To) {
    dispatch("convert", source.dtype, [&]<class From>(From) {
      constexpr int full = std::max(full_width<To>, full_width<From>);
      for_elements<Convert<To, From>::template Body, full>(streams_[s], "convert", {destination, source},
                                                           Matrix<To>(destination), Matrix<From>(source));
    });
  });
}

void CudaKernels::do_copy(Stream s, Tensor destination, Tensor source) {
  if (destination.numel() == 0) return;
  const bool dense = destination.is_dense() && source.is_dense();
  const Bytes to(destination, dense), from(source, dense);
  check_cuda(cudaMemcpy2DAsync(destination.data, to.pitch, source.data, from.pitch, to.width, to.height,
                               cudaMemcpyDeviceToDevice, streams_[s]),
             "copy");
}

void CudaKernels::do_fill(Stream s, Tensor destination, double value) {
  if (destination.numel() == 0) return;
  if (destination.dtype == DType::uint8 || (value == 0 && !std::signbit(value))) {  // all bytes alike
    const Bytes bytes(destination, destination.is_dense());
    check_cuda(cudaMemset2DAsync(destination.data, bytes.pitch, static_cast<int>(value), bytes.width, bytes.height,
                                 streams_[s]),
               "fill");
    return;
  }
  switch (destination.dtype) {
    case DType::int64: return fill_with(streams_[s], destination, static_cast<std::int64_t>(value));
    case DType::int32: return fill_with(streams_[s], destination, static_cast<std::int32_t>(value));
    default:
      dispatch("fill", destination.dtype,
               [&]<class T>(T) { fill_with(streams_[s], destination, static_cast<T>(value)); });
  }
}

}  // namespace llmtrain
