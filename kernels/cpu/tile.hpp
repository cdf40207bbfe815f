// SPDX-License-Identifier: Apache-2.0
/// Small matrix products on packed operands, tiled in registers: the core of the fp64 gemm and of attention. Each
/// element is summed over k in ascending order, whatever the tile it falls in.
#pragma once

#include <cstdint>

#include "cpu/simd.hpp"

namespace llmtrain::simd {

/// How the left operand A(i, k) of a product is stored.
enum class Left { rows, columns };  // a[i * lda + k]; a[k * lda + i]

/// Rows of a register tile: with two vectors a row its sums fill the register file but for the operands.
inline constexpr int tile_rows = vector_bytes == 64 ? 12 : 6;

/// Columns of the full tile, and of a packed panel of B.
template <class T>
inline constexpr int panel = 2 * lanes<T>;

template <class T>
struct Product {
  T* c = nullptr;  // [m, n], n a multiple of lanes<T>
  std::int64_t ldc = 0;
  const T* a = nullptr;
  std::int64_t lda = 0;
  const T* b = nullptr;  // [k, n]
  std::int64_t ldb = 0;
  std::int64_t k = 0;
};

template <class T, Left left, int rows, int vectors>
void multiply_tile(const Product<T>& p, bool accumulate) {
  Vector<T> sum[rows][vectors] = {};
  const T* a = p.a;
  const T* b = p.b;
  const std::int64_t lda = p.lda;
  for (std::int64_t k = 0; k < p.k; ++k, b += p.ldb, a += left == Left::rows ? 1 : lda) {
    Vector<T> y[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) y[v] = load(b + v * lanes<T>);
#pragma GCC unroll 12
    for (int i = 0; i < rows; ++i) {
      const Vector<T> x = splat(a[left == Left::rows ? i * lda : i]);
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) sum[i][v] = fma<T>(x, y[v], sum[i][v]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      T* c = p.c + i * p.ldc + v * lanes<T>;
      store(c, accumulate ? load(c) + sum[i][v] : sum[i][v]);
    }
  }
}

/// Calls the tile of `rows` rows, 1 <= rows <= tile_rows.
template <class T, Left left, int vectors, int rows = tile_rows>
void multiply_rows(const Product<T>& p, std::int64_t count, bool accumulate) {
  if constexpr (rows > 0) {
    if (count == rows) return multiply_tile<T, left, rows, vectors>(p, accumulate);
    multiply_rows<T, left, vectors, rows - 1>(p, count, accumulate);
  }
}

/// C (+)= A B of m rows and vectors * lanes<T> columns. Rows are cut into tiles of nearly equal height: short tiles
/// leave the multipliers waiting for their own results.
template <class T, Left left, int vectors>
void multiply_panel(Product<T> p, std::int64_t m, bool accumulate) {
  const std::int64_t tiles = (m + tile_rows - 1) / tile_rows;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t count = m / tiles + (t < m % tiles ? 1 : 0);
    multiply_rows<T, left, vectors>(p, count, accumulate);
    p.a += left == Left::rows ? count * p.lda : count;
    p.c += count * p.ldc;
  }
}

/// C[m, n] (+)= A[m, k] B[k, n], n a multiple of lanes<T>.
template <class T, Left left>
void multiply(Product<T> p, std::int64_t m, std::int64_t n, bool accumulate) {
  std::int64_t done = 0;
  for (; done + panel<T> <= n; done += panel<T>, p.b += panel<T>, p.c += panel<T>)
    multiply_panel<T, left, 2>(p, m, accumulate);
  if (done < n) multiply_panel<T, left, 1>(p, m, accumulate);
}

}  // namespace llmtrain::simd
