// SPDX-License-Identifier: Apache-2.0
/// Vectors of the widest registers the build's processor has, with fused multiply-add and 2^x; for the CPU kernels that
/// tile registers by hand.
#pragma once

#if defined(__FMA__)
#include <immintrin.h>
#endif

#include <array>
#include <cstdint>
#include <limits>
#include <numbers>

namespace llmtrain::simd {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32;
#else
inline constexpr int vector_bytes = 16;
#endif

/// Vector types of element type T. `Unaligned` is the form in which vectors lie in memory.
template <class T>
struct Types;
template <>
struct Types<float> {
  typedef float Vector __attribute__((vector_size(vector_bytes)));
  typedef float Unaligned __attribute__((vector_size(vector_bytes), aligned(4), may_alias));
  typedef std::uint32_t Bits __attribute__((vector_size(vector_bytes)));
};
template <>
struct Types<double> {
  typedef double Vector __attribute__((vector_size(vector_bytes)));
  typedef double Unaligned __attribute__((vector_size(vector_bytes), aligned(8), may_alias));
  typedef std::uint64_t Bits __attribute__((vector_size(vector_bytes)));
};
template <class T>
using Vector = typename Types<T>::Vector;

/// Elements of one vector.
template <class T>
inline constexpr int lanes = vector_bytes / static_cast<int>(sizeof(T));

template <class T>
inline Vector<T> load(const T* p) {
  return *reinterpret_cast<const typename Types<T>::Unaligned*>(p);
}

template <class T>
inline void store(T* p, Vector<T> v) {
  *reinterpret_cast<typename Types<T>::Unaligned*>(p) = v;
}

template <class T>
inline Vector<T> splat(T x) {
  return x - Vector<T>{};  // x - 0 is x for every x, -0 included, so compilers fold it to a broadcast
}

/// a b + c with one rounding where the processor can; elsewhere with two.
template <class T>
inline Vector<T> fma(Vector<T> a, Vector<T> b, Vector<T> c) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return _mm512_fmadd_ps(a, b, c);
  else
    return _mm512_fmadd_pd(a, b, c);
#elif defined(__FMA__)
  if constexpr (sizeof(T) == 4)
    return _mm256_fmadd_ps(a, b, c);
  else
    return _mm256_fmadd_pd(a, b, c);
#elif defined(__ARM_FEATURE_FMA)
  for (int i = 0; i < lanes<T>; ++i)
    c[i] = sizeof(T) == 4 ? __builtin_fmaf(a[i], b[i], c[i]) : __builtin_fma(a[i], b[i], c[i]);
  return c;
#else
  return a * b + c;
#endif
}

/// The larger of each lane; `a` where b is NaN.
template <class T>
inline Vector<T> max(Vector<T> a, Vector<T> b) {
  return b > a ? b : a;
}

/// Taylor coefficients ln(2)^n / n! of 2^f around 0.
template <class T>
consteval auto exp2_coefficients() {
  // The first term left out is below half an ulp for |f| <= 1/2.
  std::array<T, sizeof(T) == 4 ? 8 : 14> c{};
  double term = 1;
  for (std::size_t n = 0; n < c.size(); ++n) {
    c[n] = static_cast<T>(term);
    term *= std::numbers::ln2 / static_cast<double>(n + 1);
  }
  return c;
}

/// 2^x for x below the largest exponent, to about 1 ulp; 0 where the result would be denormal; NaN stays NaN.
template <class T>
inline Vector<T> exp2(Vector<T> x) {
  using Bits = typename Types<T>::Bits;
  constexpr int mantissa = std::numeric_limits<T>::digits - 1;
  // Adding 1.5 * 2^mantissa rounds x to an integer that then stands in the lowest bits.
  constexpr T magic = static_cast<T>(3ULL << (mantissa - 1));
  constexpr auto c = exp2_coefficients<T>();
  const Vector<T> shifted = x + magic;
  const Vector<T> f = x - (shifted - magic);
  Vector<T> p = splat(c.back());
#pragma GCC unroll 16
  for (int n = static_cast<int>(c.size()) - 2; n >= 0; --n) p = fma<T>(p, f, splat(c[static_cast<std::size_t>(n)]));
  const Bits scaled = reinterpret_cast<Bits>(p) + (reinterpret_cast<Bits>(shifted) << mantissa);
  constexpr T smallest = std::numeric_limits<T>::min_exponent - 1;
  return x < smallest ? Vector<T>{} : reinterpret_cast<Vector<T>>(scaled);
}

/// tanh(x), with an absolute error of about 1 ulp of 1.
template <class T>
inline Vector<T> tanh(Vector<T> x) {
  constexpr T two_log2e = 2 * std::numbers::log2e_v<T>;
  constexpr T limit = 40;  // far in the flat part, and 2^(limit 2 log2 e) is finite
  x = x > limit ? splat(limit) : x;
  return 1 - 2 / (exp2<T>(x * two_log2e) + 1);
}

}  // namespace llmtrain::simd
