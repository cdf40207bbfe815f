// SPDX-License-Identifier: Apache-2.0
/// Scalar functions that vectorise (but for erfc): exponential, sigmoid, SiLU, GeLU and their derivatives. NaN stays NaN, so that a non-finite
/// value cannot get lost on its way to the check of the step.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/element.hpp"

namespace llmtrain {

/// e^x to about 1 ulp over the whole range (overflow to infinity, gradual underflow to 0): x = n ln 2 + r, the Taylor
/// series in |r| <= ln 2 / 2, and two factors 2^(n/2) so that neither leaves the exponent's range.
LLMTRAIN_INLINE float fast_exp(float x) {
#ifdef __CUDA_ARCH__
  float power;  // by the unit for 2^x: to about 2 + |x| ulp, 0 where the result would be denormal
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 0x1.715476p0f));
  return power;
#else
  constexpr float magic = 0x1.8p23f;  // adding it leaves an integer in the low bits
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float n = std::fma(x, 0x1.715476p0f, magic) - magic;
  const float r = std::fma(n, 0x1.05c61p-29f, std::fma(n, -0x1.62e43p-1f, x));
  float p = 1.0f / 5040;
  p = std::fma(p, r, 1.0f / 720);
  p = std::fma(p, r, 1.0f / 120);
  p = std::fma(p, r, 1.0f / 24);
  p = std::fma(p, r, 1.0f / 6);
  p = std::fma(p, r, 0.5f);
  p = std::fma(r * r, p, r) + 1.0f;
  const float half = std::fma(n, 0.5f, magic);
  const float rest = (n - (half - magic)) + magic;
  const auto power1 = bits_as<float>((bits_as<std::uint32_t>(half) + 127u) << 23);
  const auto power2 = bits_as<float>((bits_as<std::uint32_t>(rest) + 127u) << 23);
  return p * power1 * power2;
#endif
}

LLMTRAIN_INLINE double fast_exp(double x) {
  constexpr double magic = 0x1.8p52;
  x = x < -746.0 ? -746.0 : x;
  x = x > 710.0 ? 710.0 : x;
  const double n = std::fma(x, 0x1.71547652b82fep0, magic) - magic;
  const double r = std::fma(n, -0x1.abc9e3b39803fp-56, std::fma(n, -0x1.62e42fefa39efp-1, x));
  double p = 1.0 / 6227020800;
  p = std::fma(p, r, 1.0 / 479001600);
  p = std::fma(p, r, 1.0 / 39916800);
  p = std::fma(p, r, 1.0 / 3628800);
  p = std::fma(p, r, 1.0 / 362880);
  p = std::fma(p, r, 1.0 / 40320);
  p = std::fma(p, r, 1.0 / 5040);
  p = std::fma(p, r, 1.0 / 720);
  p = std::fma(p, r, 1.0 / 120);
  p = std::fma(p, r, 1.0 / 24);
  p = std::fma(p, r, 1.0 / 6);
  p = std::fma(p, r, 0.5);
  p = std::fma(r * r, p, r) + 1.0;
  const double half = std::fma(n, 0.5, magic);
  const double rest = (n - (half - magic)) + magic;
  const auto power1 = bits_as<double>((bits_as<std::uint64_t>(half) + 1023u) << 52);
  const auto power2 = bits_as<double>((bits_as<std::uint64_t>(rest) + 1023u) << 52);
  return p * power1 * power2;
}

/// 1 / x for x of at least 1; in fp32 on GPUs to about 1 ulp, at a fraction of the instructions of a division.
template <class S>
LLMTRAIN_INLINE S reciprocal(S x) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(S) == 4) {
    S inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
  } else {
    return S{1} / x;
  }
#else
  return S{1} / x;
#endif
}

template <class S>
LLMTRAIN_INLINE S sigmoid(S x) {
  return reciprocal(S{1} + fast_exp(-x));
}

/// x sigmoid(x)
template <class S>
LLMTRAIN_INLINE S silu(S x) {
  return x * sigmoid(x);
}

/// Gradients of out = silu(gate) * up.
template <class S>
LLMTRAIN_INLINE void swiglu_gradient(S d_out, S gate, S up, S& d_gate, S& d_up) {
  const S s = sigmoid(gate);
  d_up = d_out * (gate * s);
  d_gate = d_out * up * (s * std::fma(gate, S{1} - s, S{1}));
}

/// GeLU in its tanh form, x (1 + tanh u) / 2 = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
template <class S>
LLMTRAIN_INLINE S gelu_tanh(S x) {
  constexpr S a = static_cast<S>(1.5957691216057308), b = static_cast<S>(0.044715);  // 2 sqrt(2 / pi)
  return x * sigmoid(a * std::fma(b * x * x, x, x));
}

template <class S>
LLMTRAIN_INLINE S gelu_tanh_derivative(S x) {
  constexpr S a = static_cast<S>(1.5957691216057308), b = static_cast<S>(0.044715);
  const S s = sigmoid(a * std::fma(b * x * x, x, x));
  return s * std::fma(a * x * (S{1} - s), std::fma(3 * b * x, x, S{1}), S{1});
}

/// GeLU, x Phi(x) with the distribution Phi of N(0, 1); erfc keeps its digits where Phi is small.
template <class S>
LLMTRAIN_INLINE S gelu_exact(S x) {
  constexpr S root_half = static_cast<S>(0.70710678118654752);
  return x * (S{0.5} * std::erfc(-x * root_half));
}

template <class S>
LLMTRAIN_INLINE S gelu_exact_derivative(S x) {
  constexpr S root_half = static_cast<S>(0.70710678118654752);
  constexpr S density_at_0 = static_cast<S>(0.39894228040143268);  // 1 / sqrt(2 pi)
  return std::fma(x * density_at_0, fast_exp(S{-0.5} * x * x), S{0.5} * std::erfc(-x * root_half));
}

}  // namespace llmtrain
