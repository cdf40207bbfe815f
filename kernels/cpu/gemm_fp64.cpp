// SPDX-License-Identifier: Apache-2.0
/// Our own fp64 matrix product, for gradient checks: blocks of D are independent and each is summed over k in one
/// order, so the result does not depend on the number of threads.
#include <algorithm>
#include <memory>

#include "cpu/gemm.hpp"
#include "cpu/tile.hpp"

namespace llmtrain {
namespace {

constexpr std::int64_t block_m = 96;  // multiples of the register tile; packed blocks of A and B stay in the L2 cache
constexpr std::int64_t block_n = 192;
constexpr std::int64_t block_k = 128;
constexpr std::int64_t width = simd::panel<double>;

/// Packed blocks of one thread.
struct alignas(64) Buffers {
  double a[block_k * block_m];  // [k, block_m]
  double b[block_k * block_n];  // [n / width, k, width]
  double d[block_m * block_n];  // [m, block_n]
};

/// One block of op(X) by element strides.
struct Operand {
  const double* data;
  std::int64_t row, col;
};

void pack_left(double* to, const Operand& a, std::int64_t m, std::int64_t k) {
  if (a.row == 1) {
    for (std::int64_t j = 0; j < k; ++j) std::copy_n(a.data + j * a.col, m, to + j * block_m);
    return;
  }
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < k; ++j) to[j * block_m + i] = a.data[i * a.row + j * a.col];
}

void pack_right(double* to, const Operand& b, std::int64_t k, std::int64_t n) {
  for (std::int64_t first = 0; first < n; first += width, to += k * width) {
    const std::int64_t count = std::min(width, n - first);
    for (std::int64_t j = 0; j < k; ++j) {
      for (std::int64_t c = 0; c < count; ++c) to[j * width + c] = b.data[j * b.row + (first + c) * b.col];
      std::fill(to + j * width + count, to + (j + 1) * width, 0.0);
    }
  }
}

void multiply_block(Buffers& buffers, std::int64_t m, std::int64_t n, std::int64_t k, bool accumulate) {
  for (std::int64_t first = 0; first < n; first += width) {
    const simd::Product<double> product{buffers.d + first,     block_n, buffers.a, block_m,
                                        buffers.b + first * k, width,   k};
    simd::multiply_panel<double, simd::Left::columns, 2>(product, m, accumulate);
  }
}

}  // namespace

void gemm_fp64(GemmForm form, GemmShape shape, Tensor d, Tensor a, Tensor b, Write write) {
  const Operand left =
      form == GemmForm::tn ? Operand{a.ptr<double>(), 1, a.leading} : Operand{a.ptr<double>(), a.leading, 1};
  const Operand right =
      form == GemmForm::nt ? Operand{b.ptr<double>(), 1, b.leading} : Operand{b.ptr<double>(), b.leading, 1};
  double* result = d.ptr<double>();
  const std::int64_t m = shape.m, n = shape.n, k = shape.k;
  const bool add = write == Write::accumulate;
#pragma omp parallel for collapse(2) schedule(dynamic) if (m * n * k >= (1 << 18))
  for (std::int64_t i = 0; i < m; i += block_m) {
    for (std::int64_t j = 0; j < n; j += block_n) {
      thread_local const auto buffers = std::make_unique<Buffers>();
      const std::int64_t rows = std::min(block_m, m - i);
      const std::int64_t cols = std::min(block_n, n - j);
      for (std::int64_t l = 0; l < k; l += block_k) {
        const std::int64_t depth = std::min(block_k, k - l);
        pack_left(buffers->a, {left.data + i * left.row + l * left.col, left.row, left.col}, rows, depth);
        pack_right(buffers->b, {right.data + l * right.row + j * right.col, right.row, right.col}, depth, cols);
        multiply_block(*buffers, rows, cols, depth, l > 0);
      }
      for (std::int64_t r = 0; r < rows; ++r) {
        const double* sum = buffers->d + r * block_n;
        double* to = result + (i + r) * d.leading + j;
        for (std::int64_t c = 0; c < cols; ++c) to[c] = add ? to[c] + sum[c] : sum[c];
      }
    }
  }
}

}  // namespace llmtrain
