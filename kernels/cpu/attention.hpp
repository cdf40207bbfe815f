// SPDX-License-Identifier: Apache-2.0
/// Causal attention on the CPU.
#pragma once

#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

void cpu_attention_forward(Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor starts,
                           const AttentionOptions& options);

void cpu_attention_backward(Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_out, Tensor q, Tensor k, Tensor v, Tensor out,
                            Tensor lse, Tensor starts, const AttentionOptions& options, Tensor workspace);

}  // namespace llmtrain
