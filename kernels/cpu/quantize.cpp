// SPDX-License-Identifier: Apache-2.0
/// fp8 copies of a matrix on the CPU.
#include <algorithm>
#include <cstring>

#include "common/fp8_scale.hpp"
#include "cpu/cpu_kernels.hpp"
#include "cpu/loops.hpp"

namespace llmtrain {

namespace {

/// The largest |x|; as bits NaN is beyond infinity, and that beyond all numbers.
float largest_size(const Matrix<Bf16>& x) {
  std::uint32_t largest = 0;
#pragma omp parallel for schedule(static) reduction(max : largest) if (x.rows * x.cols >= parallel_threshold)
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const Bf16* const row = x.row(r);
    std::uint32_t of_row = 0;
#pragma omp simd reduction(max : of_row)
    for (std::int64_t c = 0; c < x.cols; ++c) of_row = std::max(of_row, row[c].bits & std::uint32_t{0x7fff});
    largest = std::max(largest, of_row);
  }
  return bits_as<float>(largest << 16);
}

/// By tiles, whose rounded rows are turned over while they are in the cache.
template <class T>
void round_to(const Tensor& q, const Tensor& q_transposed, const Matrix<Bf16>& x, float multiplier) {
  const Matrix<T> rows(q), cols(q_transposed);
  constexpr std::int64_t tile = 64;
#pragma omp parallel for collapse(2) schedule(static) if (x.rows * x.cols >= parallel_threshold)
  for (std::int64_t r0 = 0; r0 < x.rows; r0 += tile) {
    for (std::int64_t c0 = 0; c0 < x.cols; c0 += tile) {
      const std::int64_t height = std::min(tile, x.rows - r0), width = std::min(tile, x.cols - c0);
      std::uint8_t rounded[tile][tile];  // bits: of structures, compilers make no vectors
      for (std::int64_t r = 0; r < height; ++r) {
        const Bf16* const from = x.row(r0 + r) + c0;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) rounded[r][c] = T(from[c] * multiplier).bits;
        if (rows) std::memcpy(rows.row(r0 + r) + c0, rounded[r], static_cast<std::size_t>(width));
      }
      if (!cols) continue;
      for (std::int64_t c = 0; c < width; ++c) {
        T* const to = cols.row(c0 + c) + r0;
        for (std::int64_t r = 0; r < height; ++r) to[r].bits = rounded[r][c];
      }
    }
  }
}

}  // namespace

void CpuKernels::do_quantize(Stream, Tensor q, Tensor q_transposed, Tensor scale, Tensor x, Scale known) {
  const Matrix<Bf16> from(x);
  dispatch_fp8("quantize", q ? q.dtype : q_transposed.dtype, [&]<class T>(T) {
    float& by = *scale.ptr<float>();
    if (known == Scale::unknown) by = fp8_scale(largest_size(from), T::largest);
    round_to<T>(q, q_transposed, from, fp8_multiplier(by));
  });
}

}  // namespace llmtrain
