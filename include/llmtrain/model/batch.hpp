// SPDX-License-Identifier: Apache-2.0
/// One micro-batch as the model sees it.
#pragma once

#include "llmtrain/backend/tensor.hpp"

namespace llmtrain {

/// Tokens are [batch, sequence] flattened, batch-major; all on the device, and all on every rank of a tensor group.
struct Batch {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t documents = 0;  // of all sequences, where starts are given
  Tensor tokens;               // int32 [tokens]
  Tensor targets;              // int32 [tokens]
  Tensor weights;              // fp32 [tokens], of each target's loss
  Tensor positions;            // int32 [tokens]
  Tensor order;                // int32 [tokens], the stable permutation that sorts tokens by id
  Tensor starts;               // int32 [tokens] or absent: first visible token of each token's sequence
  Tensor
      samples;  // int64 [batch] or absent: number of each sequence in the run, the key of dropout; absent = none drops

  std::int64_t count() const { return batch * sequence; }
};

}  // namespace llmtrain
