// SPDX-License-Identifier: Apache-2.0
/// Bytes of temporary memory that operations and communicators need, by device kind: pure arithmetic, so that the
/// memory plan of a run can be made on any machine.
#pragma once

#include <cstdint>

#include "llmtrain/backend/device.hpp"
#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

/// Of Kernels::use_workspace, shared by all operations; 0 where none is needed.
std::int64_t kernels_workspace(DeviceKind kind);
/// The part of it in which the CUDA kernels add up blocks; the rest is for cuBLASLt and cuDNN.
inline constexpr std::int64_t cuda_partial_sums_bytes = std::int64_t{8} << 20;

/// Of rms_norm_backward on x [rows, cols]; heads that are normalised one by one are rows.
std::int64_t norm_backward_workspace(DeviceKind kind, std::int64_t rows, std::int64_t cols, DType stats);
/// Of layer_norm_backward on x [rows, cols].
std::int64_t layer_norm_backward_workspace(DeviceKind kind, std::int64_t rows, std::int64_t cols, DType stats);
/// Of attention_backward; `masked`: with document masks.
std::int64_t attention_backward_workspace(DeviceKind kind, const AttentionShape& shape, DType stats,
                                          bool masked = false);
// The parts of that on CUDA: what one sequence and kv head adds where all gradients of scores are kept (in
// run.deterministic), and what every call needs besides.
std::int64_t attention_scores_bytes(const AttentionShape& shape);
std::int64_t attention_fixed_bytes(const AttentionShape& shape, DType stats);
// What document masks add: offsets of the documents in every tensor, and q and the gradients without gaps between rows.
std::int64_t attention_documents_bytes(const AttentionShape& shape);
/// Documents that one attention call takes on the library's path.
inline constexpr std::int64_t cuda_most_documents = std::int64_t{1} << 15;

/// Of a communicator over `size` ranks whose largest tensor has `largest` bytes (its staging memory).
std::int64_t communicator_workspace(DeviceKind kind, int size, std::int64_t largest);
/// Of one end of a channel, a communicator of two over which rank 0 sends and rank 1 receives messages of at most so many
/// bytes, and nothing else. Between GPUs of one node a message waits at the receiving end for its receive.
std::int64_t channel_workspace(DeviceKind kind, std::int64_t message, bool receives, bool on_one_node);

}  // namespace llmtrain
