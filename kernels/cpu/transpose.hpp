// SPDX-License-Identifier: Apache-2.0
/// A transposing copy, in registers where the processor has AVX2: packs operands of products.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "common/element.hpp"

namespace llmtrain {

#if defined(__AVX2__)
/// Eight elements as fp32.
inline __m256 load_8(const float* p) { return _mm256_loadu_ps(p); }
inline __m256 load_8(const Bf16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/// to[r * ld_to + c] = from[c * ld_from + r] for r and c in [0, 8).
template <class T>
void transpose_8x8(float* to, std::int64_t ld_to, const T* from, std::int64_t ld_from) {
  __m256 x[8], y[8];
  for (int i = 0; i < 8; ++i) x[i] = load_8(from + i * ld_from);
  for (int i = 0; i < 8; i += 2) {
    y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      x[i + 2 * j] = _mm256_shuffle_ps(y[i + j], y[i + 2 + j], 0x44);
      x[i + 2 * j + 1] = _mm256_shuffle_ps(y[i + j], y[i + 2 + j], 0xee);
    }
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * ld_to, _mm256_permute2f128_ps(x[i], x[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * ld_to, _mm256_permute2f128_ps(x[i], x[i + 4], 0x31));
  }
}
#endif

/// to[r * ld_to + c] = from[c * ld_from + r] for r in [0, rows) and c in [0, cols).
template <class S, class T>
void transpose(S* to, std::int64_t ld_to, const T* from, std::int64_t ld_from, std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t step = 8;
  for (std::int64_t c = 0; c < cols; c += step) {
    for (std::int64_t r = 0; r < rows; r += step) {
#if defined(__AVX2__)
      if constexpr (std::is_same_v<S, float> && sizeof(T) > 1) {
        if (r + step <= rows && c + step <= cols) {
          transpose_8x8(to + r * ld_to + c, ld_to, from + c * ld_from + r, ld_from);
          continue;
        }
      }
#endif
      for (std::int64_t i = r; i < std::min(rows, r + step); ++i)
        for (std::int64_t j = c; j < std::min(cols, c + step); ++j) to[i * ld_to + j] = load(from[j * ld_from + i]);
    }
  }
}

}  // namespace llmtrain
