// SPDX-License-Identifier: Apache-2.0
/// Causal attention of the CPU back end, in fp32 and fp64, block by block: the scores of a sequence are never stored
/// whole.
#pragma once

#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

/// Largest head_dim of the CPU kernels.
inline constexpr std::int64_t cpu_max_head_dim = 256;

/// As Kernels::attention_forward, on shapes and dtypes already checked there; head_dim <= cpu_max_head_dim. A token
/// always sees itself, whatever `starts` says. The same bits at any number of threads. Online softmax after Milakov and
/// Gimelshein (arXiv 1805.02867), blocks after FlashAttention-2 (arXiv 2307.08691).
void cpu_attention_forward(Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor starts,
                           const AttentionOptions& options);

/// As Kernels::attention_backward; `workspace` holds at least heads * tokens elements of the stats dtype. The same bits
/// at any number of threads.
void cpu_attention_backward(Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_out, Tensor q, Tensor k, Tensor v, Tensor out,
                            Tensor lse, Tensor starts, const AttentionOptions& options, Tensor workspace);

}  // namespace llmtrain
