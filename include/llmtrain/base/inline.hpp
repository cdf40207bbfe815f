// SPDX-License-Identifier: Apache-2.0
/// How scalar formulas (random numbers here, kernels/common) are inlined: into vectorised loops on the host and into
/// device kernels.
#pragma once

#include <cstring>

#ifdef __CUDACC__
#define LLMTRAIN_INLINE __host__ __device__ __forceinline__
#else
#define LLMTRAIN_INLINE [[gnu::always_inline]] inline
#endif

namespace llmtrain {

/// The same bits as another type of the same size.
template <class To, class From>
LLMTRAIN_INLINE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

}  // namespace llmtrain
