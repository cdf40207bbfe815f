// SPDX-License-Identifier: Apache-2.0
/// Our own matrix product, for data that the processor does not multiply: fp64 for gradient checks, bf16 and fp8 widened to
/// fp32 while they are packed. Blocks of D are independent and each element is summed over k in one order, so the result does
/// not depend on the number of threads.
#include <omp.h>

#include <algorithm>
#include <memory>

#include "cpu/gemm.hpp"
#include "cpu/loops.hpp"
#include "cpu/tile.hpp"
#include "cpu/transpose.hpp"

namespace llmtrain {
namespace {

/// Extents of the blocks of sums of type S. The packed block of A and the sums stay in the L2 cache, a panel of B in L1.
template <class S>
struct Blocks {
  static constexpr std::int64_t m = 256;
  static constexpr std::int64_t n = 128;
  static constexpr std::int64_t k = 1024 / sizeof(S);
  static constexpr std::int64_t width = simd::panel<S>;
  static constexpr std::int64_t lda = k + 16;  // not a power of two: rows of A are read side by side
};

/// Packed blocks of one thread.
template <class S>
struct alignas(64) Buffers {
  using Block = Blocks<S>;
  S a[Block::m * Block::lda];    // [m, lda]
  S b[Block::k * Block::width];  // one panel
  S d[Block::m * Block::n];      // [m, n]
};

/// op(X) by element strides, one of which is 1.
template <class T>
struct Operand {
  const T* data;
  std::int64_t row, col;
  Operand at(std::int64_t r, std::int64_t c) const { return {data + r * row + c * col, row, col}; }
};

template <class T>
Operand<T> operand(const Tensor& x, bool transposed) {
  return transposed ? Operand<T>{x.ptr<T>(), 1, x.leading} : Operand<T>{x.ptr<T>(), x.leading, 1};
}

/// to[r * ld + c] = x(r, c) for r in [0, rows) and c in [0, cols).
template <class S, class T>
void pack(S* to, std::int64_t ld, const Operand<T>& x, std::int64_t rows, std::int64_t cols) {
  if (x.col != 1) return transpose(to, ld, x.data, x.col, rows, cols);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* const from = x.data + r * x.row;
    S* const row = to + r * ld;
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) row[c] = load(from[c]);
  }
}

/// buffers.d (+)= the product of one block of A and one of B.
template <class S, class A, class B>
void multiply_block(Buffers<S>& buffers, const Operand<A>& a, const Operand<B>& b, GemmShape size, bool accumulate) {
  using Block = Blocks<S>;
  pack(buffers.a, Block::lda, a, size.m, size.k);
  for (std::int64_t j = 0; j < size.n; j += Block::width) {
    const std::int64_t count = std::min(Block::width, size.n - j);
    if (count < Block::width) std::fill_n(buffers.b, size.k * Block::width, S(0));
    pack(buffers.b, Block::width, b.at(0, j), size.k, count);
    simd::multiply_panel<S, simd::Left::rows, 2>(
        {buffers.d + j, Block::n, buffers.a, Block::lda, buffers.b, Block::width, size.k}, size.m, accumulate);
  }
}

/// Rows of D in one task: fewer than the block holds where there would be too few tasks for the threads.
template <class S>
std::int64_t task_rows(const GemmShape& shape) {
  const std::int64_t columns = (shape.n + Blocks<S>::n - 1) / Blocks<S>::n;
  std::int64_t rows = Blocks<S>::m;
  while (rows > 32 && (shape.m + rows - 1) / rows * columns < 2 * omp_get_max_threads()) rows /= 2;
  return rows;
}

/// `scale`: of the sums.
template <class A, class B, class D>
void multiply(GemmForm form, GemmShape shape, const Tensor& d, const Tensor& a, const Tensor& b, Write write,
              StatsType<A> scale = 1) {
  using S = StatsType<A>;
  using Block = Blocks<S>;
  const Matrix<D> result(d);
  const Operand<A> left = operand<A>(a, form == GemmForm::tn);
  const Operand<B> right = operand<B>(b, form == GemmForm::nt);
  const std::int64_t step = task_rows<S>(shape);
#pragma omp parallel for collapse(2) schedule(dynamic) if (shape.m * shape.n * shape.k >= (1 << 18))
  for (std::int64_t j = 0; j < shape.n; j += Block::n) {
    for (std::int64_t i = 0; i < shape.m; i += step) {
      thread_local const auto buffers = std::make_unique<Buffers<S>>();
      const std::int64_t rows = std::min(step, shape.m - i), cols = std::min(Block::n, shape.n - j);
      for (std::int64_t l = 0; l < shape.k; l += Block::k) {
        const std::int64_t depth = std::min(Block::k, shape.k - l);
        multiply_block(*buffers, left.at(i, l), right.at(l, j), {rows, cols, depth}, l > 0);
      }
      for (std::int64_t r = 0; r < rows; ++r) {
        const S* const sum = buffers->d + r * Block::n;
        D* const to = result.row(i + r) + j;
        const bool add = write == Write::accumulate;
#pragma omp simd
        for (std::int64_t c = 0; c < cols; ++c) {  // rounded once
          const S scaled = scale * sum[c];
          store(to[c], add ? load(to[c]) + scaled : scaled);
        }
      }
    }
  }
}

}  // namespace

void gemm_tiled(GemmForm form, GemmShape shape, Tensor d, Tensor a, Tensor b, Write write) {
  if (is_fp8(a.dtype)) {
    dispatch_fp8("gemm", a.dtype, [&]<class A>(A) {
      dispatch_stored<float>("products of fp8", d.dtype, [&]<class D>(D) {
        multiply<A, Fp8E4M3, D>(form, shape, d, a, b, write, *a.scale * *b.scale);
      });
    });
    return;
  }
  dispatch("gemm", a.dtype, [&]<class T>(T) {
    if (d.dtype == a.dtype) {
      multiply<T, T, T>(form, shape, d, a, b, write);
    } else {
      multiply<T, T, StatsType<T>>(form, shape, d, a, b, write);
    }
  });
}

}  // namespace llmtrain
