// SPDX-License-Identifier: Apache-2.0
/// Least squares for the constants of the time model.
#pragma once

#include <vector>

namespace llmtrain {

/// One measurement: value = sum of coefficients x features.
struct FitRow {
  std::vector<double> features;
  double value = 0;
};

/// The coefficients of least relative error, none below 0; those that would be are left out, but never the first.
std::vector<double> fit_relative(const std::vector<FitRow>& rows);

}  // namespace llmtrain
