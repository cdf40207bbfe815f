// SPDX-License-Identifier: Apache-2.0
/// The value in the middle, which one odd measurement does not move.
#pragma once

#include <algorithm>
#include <vector>

namespace llmtrain {

/// Of an even number of values the mean of the two in the middle; 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return values.size() % 2 == 1 ? *middle : (*std::max_element(values.begin(), middle) + *middle) / 2;
}

}  // namespace llmtrain
