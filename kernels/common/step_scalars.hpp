// SPDX-License-Identifier: Apache-2.0
/// The scalars of a step from its totals: one formula for every device.
#pragma once

#include <cmath>

#include "common/element.hpp"
#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

/// 1 - beta^t without cancellation.
inline double bias_correction(double beta, std::int64_t step) {
  return -std::expm1(static_cast<double>(step) * std::log(beta));
}

/// `inputs` as known to the host, with its bias corrections 1 - beta^t; all in fp64.
struct StepFactors {
  explicit StepFactors(const StepInputs& inputs)
      : lr(inputs.lr),
        bias1(bias_correction(inputs.beta1, inputs.step)),
        bias2(bias_correction(inputs.beta2, inputs.step)),
        clip(inputs.clip) {}
  double lr, bias1, bias2, clip;
};

/// The gradient's sum is divided once by the number of target tokens; without any, or with values that are not finite,
/// nothing is updated.
LLMTRAIN_INLINE StepScalars step_scalars_of(const StepTotals& t, const StepFactors& f) {
  const auto is_finite = [](double x) { return x - x == 0; };
  const bool any = t.tokens > 0;
  const bool good = any && t.non_finite == 0 && is_finite(t.squares) && is_finite(t.loss) && is_finite(t.tokens);
  const double norm = any ? std::sqrt(t.squares) / t.tokens : 0;
  const double limited = f.clip / (norm + 1e-6);
  const double clip = f.clip > 0 && limited < 1 ? limited : 1;
  return {.gradient_scale = good ? clip / t.tokens : 0,
          .lr = f.lr,
          .bias1 = f.bias1,
          .bias2 = f.bias2,
          .apply = good ? 1.0 : 0.0,
          .loss = any ? t.loss / t.tokens : 0,
          .gradient_norm = norm,
          .tokens = t.tokens};
}

}  // namespace llmtrain
