// SPDX-License-Identifier: Apache-2.0
/// Matrix products on the CPU.
#pragma once

#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

void cpu_gemm(GemmForm form, Tensor d, Tensor a, Tensor b, Write write);

}  // namespace llmtrain
