// SPDX-License-Identifier: Apache-2.0
/// What both norms share: the rows that they normalise, and sums over rows by fixed blocks.
#pragma once

#include "cpu/loops.hpp"
#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

/// The rows of a [tokens, cols] tensor, or its pieces of `width` columns (heads) as rows of their own.
template <class T>
struct NormRows {
  NormRows(const Tensor& t, std::int64_t row_width)
      : data(t ? t.ptr<T>() : nullptr), leading(t.leading), width(row_width), pieces(t ? t.cols() / row_width : 1) {}
  T* row(std::int64_t r) const { return data + r / pieces * leading + r % pieces * width; }
  explicit operator bool() const { return data != nullptr; }

  T* data;
  std::int64_t leading, width, pieces;
};

/// total [cols] (+)= the sum of `blocks` partial sums, block b at partials + b * step, in order of b, rounded once.
template <class S>
void add_partial_sums(const Tensor& total, const S* partials, std::int64_t step, std::int64_t blocks, Write write,
                      bool parallel) {
  dispatch_stored<S>("gradients of a norm", total.dtype, [&]<class G>(G) {
    constexpr std::int64_t width = 64;
    G* const out = total.ptr<G>();
#pragma omp parallel for schedule(static) if (parallel)
    for (std::int64_t begin = 0; begin < total.numel(); begin += width) {
      const std::int64_t n = std::min(width, total.numel() - begin);
      S sums[width] = {};
      if (write == Write::accumulate) {
        for (std::int64_t c = 0; c < n; ++c) sums[c] = load(out[begin + c]);
      }
      for (std::int64_t b = 0; b < blocks; ++b) {
        const S* const partial = partials + b * step + begin;
#pragma omp simd
        for (std::int64_t c = 0; c < n; ++c) sums[c] += partial[c];
      }
      for (std::int64_t c = 0; c < n; ++c) store(out[begin + c], sums[c]);
    }
  });
}

}  // namespace llmtrain
