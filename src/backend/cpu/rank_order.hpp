// SPDX-License-Identifier: Apache-2.0
/// The arithmetic of reductions: contributions combined element by element in rank order.
#pragma once

#include <cstdint>
#include <span>

#include "llmtrain/backend/communicator.hpp"

namespace llmtrain {

/// Whether reduce_in_rank_order knows this pair: sum and max of fp64, fp32, bf16, int64 and int32.
bool can_reduce(DType dtype, ReduceOp op);

/// destination [count] = contributions[0] op contributions[1] op ..., in that order; fp32 and fp64 in themselves, bf16 in
/// fp32 and rounded once. A NaN wins a maximum. `destination` may be one of the contributions.
void reduce_in_rank_order(void* destination, std::span<const void* const> contributions, std::int64_t count,
                          DType dtype, ReduceOp op);

}  // namespace llmtrain
