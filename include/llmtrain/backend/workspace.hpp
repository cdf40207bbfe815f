// SPDX-License-Identifier: Apache-2.0
/// Bytes of temporary memory that operations and communicators need, by device kind: pure arithmetic, so that the
/// memory plan of a run can be made on any machine.
#pragma once

#include <cstdint>

#include "llmtrain/backend/device.hpp"
#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

/// Of rms_norm_backward on x [rows, cols]; heads that are normalised one by one are rows.
std::int64_t norm_backward_workspace(DeviceKind kind, std::int64_t rows, std::int64_t cols, DType stats);
/// Of layer_norm_backward on x [rows, cols].
std::int64_t layer_norm_backward_workspace(DeviceKind kind, std::int64_t rows, std::int64_t cols, DType stats);
/// Of attention_backward.
std::int64_t attention_backward_workspace(DeviceKind kind, const AttentionShape& shape, DType stats);
/// Of a communicator over `size` ranks whose largest tensor has `largest` bytes (its staging memory).
std::int64_t communicator_workspace(DeviceKind kind, int size, std::int64_t largest);

}  // namespace llmtrain
