// SPDX-License-Identifier: Apache-2.0
/// Do two layouts train the same model? Every number of one against the other's, each with its bound.
#pragma once

#include <string>
#include <vector>

#include "llmtrain/driver/layout_run.hpp"

namespace llmtrain {

/// One comparison; it holds if the difference is at most the bound (a NaN never is).
struct Check {
  std::string quantity;  ///< e.g. "gradients of step 1"
  std::string name;      ///< a section, or "step 3"
  double difference = 0;
  double bound = 0;
  bool holds() const { return difference <= bound; }
};

/// What two layouts must agree in: values within bounds that follow from rounding, or every bit.
enum class Agreement { bound, bits };

/// All checks of `a` against `b` in the order in which a run computes the numbers, on rank 0 of both. With e = 1e-13 in
/// fp64, 1e-5 in fp32, 3e-2 in bf16, 2e-1 with linear layers in fp8, and u = 1e-14, 1e-6, 6e-2, 2e-1:
///   initial weights  equal bits
///   gradients        ||a - b|| <= e ||b|| + u G sqrt(n / N), G the norm of all gradients, n and N numbers of elements:
///                    what is zero in exact arithmetic, as the gradient of GPT's key bias, is noise
///   losses           |a - b| <= e |b|, in fp64 10 e |b|, with fp8 3e-2 |b|
///   gradient norms   |a - b| <= (e + u) |b| of step 1, which follows from the gradients' bound; 100 e |b| later
///   parameters       max |a - b| <= 2 r (sum of lr), r = min(1, e G / Adam's eps): an update is at most lr, and a
///                    difference d of a gradient changes it by d / eps at most; in bf16 2^-8 max |b| more, for weights
///                    are rounded
std::vector<Check> compare(const LayoutNumbers& a, const LayoutNumbers& b, Agreement agreement);

/// Null if all hold.
const Check* first_failure(const std::vector<Check>& checks);

/// A few lines: each quantity with its largest difference in parts of its bound, and the first that does not hold.
std::string report(const std::vector<Check>& checks);

}  // namespace llmtrain
