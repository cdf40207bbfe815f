// SPDX-License-Identifier: Apache-2.0
/// The AdamW update of one element (arXiv 1711.05101, algorithm 2, with decay decoupled from the moments).
#pragma once

#include <cmath>

#include "common/element.hpp"
#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

/// Factors of one step, prepared in fp64 once and rounded to the type of the update.
template <class S>
struct AdamWFactors {
  S gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  S rate;       ///< lr / (1 - beta1^t)
  S root_bias;  ///< 1 / sqrt(1 - beta2^t)
  S eps;
  S decay;  ///< lr * weight_decay

  LLMTRAIN_INLINE AdamWFactors(const StepScalars& s, const AdamWOptions& o)
      : gradient_scale(static_cast<S>(s.gradient_scale)),
        beta1(static_cast<S>(o.beta1)),
        one_minus_beta1(static_cast<S>(1 - o.beta1)),
        beta2(static_cast<S>(o.beta2)),
        one_minus_beta2(static_cast<S>(1 - o.beta2)),
        rate(static_cast<S>(s.lr / s.bias1)),
        root_bias(static_cast<S>(1 / std::sqrt(s.bias2))),
        eps(static_cast<S>(o.eps)),
        decay(static_cast<S>(s.lr * o.weight_decay)) {}
};

/// p -= lr (m_hat / (sqrt(v_hat) + eps) + weight_decay p), with m and v updated by the scaled gradient first.
template <class S>
LLMTRAIN_INLINE void adamw_update(const AdamWFactors<S>& f, S gradient, S& p, S& m, S& v) {
  const S g = gradient * f.gradient_scale;
  m = std::fma(f.beta1, m, f.one_minus_beta1 * g);
  v = std::fma(f.beta2, v, f.one_minus_beta2 * (g * g));
  const S denominator = std::fma(std::sqrt(v), f.root_bias, f.eps);
  p = std::fma(-f.decay, p, p);
  p = std::fma(-f.rate, m / denominator, p);
}

}  // namespace llmtrain
