// SPDX-License-Identifier: Apache-2.0
/// What the CPU kernels share: dispatch on the element type, views with rows, parallel loops over fixed blocks and sums
/// in a fixed order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/dispatch.hpp"
#include "llmtrain/backend/tensor.hpp"

namespace llmtrain {

/// Work items (elements, roughly) below which an operation stays on one thread: a team costs a few microseconds.
inline constexpr std::int64_t parallel_threshold = 16384;
/// Elements of one task of an elementwise operation.
inline constexpr std::int64_t block_size = 8192;

/// A [rows, cols] tensor with a typed pointer.
template <class T>
struct Matrix {
  explicit Matrix(const Tensor& t)
      : data(t ? t.ptr<T>() : nullptr), leading(t.leading), rows(t.rows()), cols(t.cols()) {}
  T* row(std::int64_t r) const { return data + r * leading; }
  explicit operator bool() const { return data != nullptr; }

  T* data;
  std::int64_t leading, rows, cols;
};

/// Runs body(row, begin, end) over all elements of [rows, cols], in blocks of columns; the tensors of one element-by-
/// element operation are read as a single row when all of them are dense.
template <class Body>
void for_blocks(std::initializer_list<Tensor> tensors, Body&& body) {
  const Tensor& first = *tensors.begin();
  const bool dense = std::all_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return !t || t.is_dense(); });
  const std::int64_t rows = dense ? 1 : first.rows();
  const std::int64_t cols = dense ? first.numel() : first.cols();
  const std::int64_t blocks = (cols + block_size - 1) / block_size;
#pragma omp parallel for collapse(2) schedule(static) if (rows * cols >= parallel_threshold)
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t b = 0; b < blocks; ++b) body(r, b * block_size, std::min(cols, (b + 1) * block_size));
  }
}

/// Sum of term(i) over i in [0, n) in a fixed order that vectorises: 16 interleaved partial sums, then those by halves.
template <class S, class Term>
LLMTRAIN_INLINE S lane_sum(std::int64_t n, Term&& term) {
  constexpr std::int64_t lanes = 16;
  S sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
#pragma omp simd
    for (std::int64_t j = 0; j < lanes; ++j) sums[j] += term(i + j);
  }
  for (std::int64_t j = 0; i + j < n; ++j) sums[j] += term(i + j);
  for (std::int64_t width = lanes / 2; width > 0; width /= 2) {
    for (std::int64_t j = 0; j < width; ++j) sums[j] += sums[j + width];
  }
  return sums[0];
}

}  // namespace llmtrain
