// SPDX-License-Identifier: Apache-2.0
/// Rotary position embedding in place, on the CPU.
#include <cmath>

#include "cpu/cpu_kernels.hpp"
#include "cpu/loops.hpp"

namespace llmtrain {

namespace {

constexpr std::int64_t chunk = 128;  // pairs whose cosines and sines are unpacked on the stack

/// Rotates pairs [begin, end) of every head of one token; `table` [head_dim / 2, 2] is the row of its position.
template <class T>
void rotate(T* token, std::int64_t heads, std::int64_t half, const StatsType<T>* table, StatsType<T> direction,
            std::int64_t begin, std::int64_t end) {
  using S = StatsType<T>;
  S cosine[chunk], sine[chunk];
  for (std::int64_t i = begin; i < end; ++i) {
    cosine[i - begin] = table[2 * i];
    sine[i - begin] = direction * table[2 * i + 1];
  }
  for (std::int64_t h = 0; h < heads; ++h) {
    T* const low = token + h * 2 * half + begin;
    T* const high = low + half;
#pragma omp simd
    for (std::int64_t i = 0; i < end - begin; ++i) {
      const S a = load(low[i]), b = load(high[i]);
      store(low[i], std::fma(a, cosine[i], -(b * sine[i])));
      store(high[i], std::fma(b, cosine[i], a * sine[i]));
    }
  }
}

}  // namespace

void CpuKernels::do_rope(Stream, Tensor x, Tensor table, Tensor positions, Rotation direction) {
  const std::int32_t* const position = positions.ptr<std::int32_t>();
  const std::int64_t tokens = x.rows(), heads = x.extent[1], half = x.extent[2] / 2;
  for (std::int64_t t = 0; t < tokens; ++t) {
    require(position[t] >= 0 && position[t] < table.rows(), ExitCode::internal,
            "internal error: rope: token {} has position {}, the table {} rows", t, position[t], table.rows());
  }
  dispatch("rope", x.dtype, [&]<class T>(T) {
    using S = StatsType<T>;
    const Matrix<T> values(x);
    const S* const rotations = table.ptr<S>();
    const S sign = direction == Rotation::forward ? S{1} : S{-1};
#pragma omp parallel for schedule(static) if (x.numel() >= parallel_threshold)
    for (std::int64_t t = 0; t < tokens; ++t) {
      const S* const row = rotations + position[t] * 2 * half;
      for (std::int64_t begin = 0; begin < half; begin += chunk) {
        rotate(values.row(t), heads, half, row, sign, begin, std::min(half, begin + chunk));
      }
    }
  });
}

}  // namespace llmtrain
