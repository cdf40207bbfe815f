// SPDX-License-Identifier: Apache-2.0
/// How fast the processor's bf16 vectors multiply.
#pragma once

namespace llmtrain {

/// Whether AVX-512's product of bf16 vectors takes so long that fused multiply-adds of the widened numbers are faster: on
/// processors that leave bf16 to AMX and where that is switched off, as in many virtual machines. Measured once, in 0.1 ms;
/// processors differ by more than noise does (4 times the time of a multiply-add, or 1 to 2). False where this build
/// cannot tell.
bool bf16_vectors_are_slow();

}  // namespace llmtrain
