// SPDX-License-Identifier: Apache-2.0
/// How the scalar formulas of kernels/common are inlined: into vectorised loops on the host and into CUDA kernels.
#pragma once

#ifdef __CUDACC__
#define LLMTRAIN_INLINE __host__ __device__ __forceinline__
#else
#define LLMTRAIN_INLINE [[gnu::always_inline]] inline
#endif
