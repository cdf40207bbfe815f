// SPDX-License-Identifier: Apache-2.0
/// The rate of a device's matrix products, measured, beside its peak.
#pragma once

#include <functional>
#include <string>

#include "llmtrain/backend/device.hpp"

namespace llmtrain {

/// FLOP/s of one large square product: the median of `repeats` goes after one that is not counted. `together` is called
/// before each. Takes memory and gives it back; kernels have no workspace afterwards.
double measure_products(
    Device& device, DType precision, int repeats, const std::function<void()>& together = [] {});

/// Those of a run's ranks.
struct ProductRates {
  double slowest = 0, fastest = 0;  ///< 0: not measured
};

/// "989.4 TFLOP/s, dense bf16 of ...; measured 702.0 to 715.3 TFLOP/s, 71.0 % of it": `formula` says what the peak is,
/// 0 where it is not known.
std::string speed_line(double peak, const std::string& formula, const ProductRates& rates);

}  // namespace llmtrain
