// SPDX-License-Identifier: Apache-2.0
/// The scale of an fp8 tensor from its largest element: "current scaling" of arXiv 2209.05433.
#pragma once

#include "llmtrain/base/inline.hpp"

namespace llmtrain {

/// What fp8 elements are multiplied by. `largest_fp8`: the format's largest number. NaN gives NaN; a smaller `largest` than
/// the multiplier allows counts as that.
LLMTRAIN_INLINE float fp8_scale(float largest, float largest_fp8) {
  if (largest == 0.0F) return 1.0F;
  const float least = largest_fp8 * 0x1p-126F;
  return (largest < least ? least : largest) / largest_fp8;
}

/// What an element is multiplied by before it is rounded: by 0 beside infinity, so that infinity gives NaN. The largest one
/// may come out beyond the format's largest number by rounding, and counts as that.
LLMTRAIN_INLINE float fp8_multiplier(float scale) { return 1.0F / scale; }

}  // namespace llmtrain
