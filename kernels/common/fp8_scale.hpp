// SPDX-License-Identifier: Apache-2.0
/// The scale of an fp8 tensor from its largest element: "current scaling" of arXiv 2209.05433.
#pragma once

#include "llmtrain/base/inline.hpp"

namespace llmtrain {

struct Fp8Scale {
  float scale;  ///< what fp8 elements are multiplied by
  /// What an element is multiplied by before it is rounded. Beside infinity it is 0, so that infinity gives NaN.
  float multiplier;
};

/// `largest_fp8`: the format's largest number. NaN gives NaN; a smaller `largest` than the multiplier allows counts as that.
LLMTRAIN_INLINE Fp8Scale fp8_scale(float largest, float largest_fp8) {
  if (largest == 0.0F) return {1.0F, 1.0F};
  const float least = largest_fp8 * 0x1p-126F;
  if (largest < least) largest = least;
  return {largest / largest_fp8, largest_fp8 / largest};
}

}  // namespace llmtrain
