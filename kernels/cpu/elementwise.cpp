// SPDX-License-Identifier: Apache-2.0
/// Sums, conversions, copies and fills on the CPU.
#include <cmath>
#include <cstring>

#include "cpu/cpu_kernels.hpp"
#include "cpu/loops.hpp"

namespace llmtrain {

namespace {

template <class T>
void fill_with(const Tensor& destination, double value) {
  const Matrix<T> out(destination);
  T element;
  store(element, value);
  for_blocks({destination}, [&](std::int64_t r, std::int64_t begin, std::int64_t end) {
    std::fill(out.row(r) + begin, out.row(r) + end, element);
  });
}

}  // namespace

void CpuKernels::do_add(Stream, Tensor out, Tensor a, Tensor b) {
  dispatch("add", out.dtype, [&]<class T>(T) {
    const Matrix<T> o(out), x(a), y(b);
    for_blocks({out, a, b}, [&](std::int64_t r, std::int64_t begin, std::int64_t end) {
      T* const o_row = o.row(r);
      const T *const x_row = x.row(r), *const y_row = y.row(r);
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) store(o_row[i], load(x_row[i]) + load(y_row[i]));
    });
  });
}

void CpuKernels::do_sum_parts(Stream, Tensor out, std::span<const Tensor> parts, Write write) {
  dispatch("sum_parts", out.dtype, [&]<class Y>(Y) {
    dispatch_stored<StatsType<Y>>("parts of sum_parts", parts[0].dtype, [&]<class X>(X) {
      for_blocks({out.flat()}, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        constexpr std::int64_t tile = 1024;  // of sums: stays in the first-level cache
        StatsType<Y> total[tile];
        for (std::int64_t at = begin; at < end; at += tile) {
          const std::int64_t count = std::min(tile, end - at);
          const X* const first = parts[0].ptr<X>() + at;
#pragma omp simd
          for (std::int64_t i = 0; i < count; ++i) total[i] = load(first[i]);
          for (const Tensor& part : parts.subspan(1)) {
            const X* const term = part.ptr<X>() + at;
#pragma omp simd
            for (std::int64_t i = 0; i < count; ++i) total[i] += load(term[i]);
          }
          Y* const sum = out.ptr<Y>() + at;
          if (write == Write::accumulate) {
#pragma omp simd
            for (std::int64_t i = 0; i < count; ++i) total[i] += load(sum[i]);
          }
#pragma omp simd
          for (std::int64_t i = 0; i < count; ++i) store(sum[i], total[i]);
        }
      });
    });
  });
}

void CpuKernels::do_convert(Stream, Tensor destination, Tensor source) {
  dispatch("convert", destination.dtype, [&]<class To>(To) {
    dispatch("convert", source.dtype, [&]<class From>(From) {
      const Matrix<To> out(destination);
      const Matrix<From> in(source);
      for_blocks({destination, source}, [&](std::int64_t r, std::int64_t begin, std::int64_t end) {
        To* const out_row = out.row(r);
        const From* const in_row = in.row(r);
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) store(out_row[i], load(in_row[i]));
      });
    });
  });
}

void CpuKernels::do_copy(Stream, Tensor destination, Tensor source) {
  const std::int64_t size = size_of(destination.dtype);
  char* const out = static_cast<char*>(destination.data);
  const char* const in = static_cast<const char*>(source.data);
  for_blocks({destination, source}, [&](std::int64_t r, std::int64_t begin, std::int64_t end) {
    std::memcpy(out + (r * destination.leading + begin) * size, in + (r * source.leading + begin) * size,
                static_cast<std::size_t>((end - begin) * size));
  });
}

void CpuKernels::do_fill(Stream, Tensor destination, double value) {
  switch (destination.dtype) {
    case DType::int64: return fill_with<std::int64_t>(destination, value);
    case DType::int32: return fill_with<std::int32_t>(destination, value);
    case DType::uint8: {
      const Tensor& d = destination;
      for_blocks({d}, [&](std::int64_t r, std::int64_t begin, std::int64_t end) {
        std::memset(static_cast<char*>(d.data) + r * d.leading + begin, static_cast<int>(value),
                    static_cast<std::size_t>(end - begin));
      });
      return;
    }
    default: dispatch("fill", destination.dtype, [&]<class T>(T) { fill_with<T>(destination, value); });
  }
}

}  // namespace llmtrain
