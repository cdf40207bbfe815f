// SPDX-License-Identifier: Apache-2.0
/// The model's dimensions as one tensor rank sees them.
#pragma once

#include <cstdint>

#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// Local extents; `config` must be resolved (head_dim, vocab and vocab_multiple set).
struct LocalShapes {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;     ///< query heads of this rank
  std::int64_t kv_heads = 0;  ///< at least 1 (K and V are replicated when tensor ranks outnumber them)
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;
  std::int64_t vocab = 0;  ///< rows of embedding and head of this rank, padding included
  VocabRange vocab_range;
  bool gated = true;        ///< the MLP multiplies by a gate (SwiGLU)
  bool layer_norm = false;  ///< LayerNorm with bias, else RMSNorm
  bool qk_norm = false;     ///< RMSNorm on every head of q and k
  int token_parts = 1;      ///< ranks that cut the stream by tokens (sequence parallelism)

  LocalShapes(const ModelConfig& config, int tensor_rank, int tensor_size, bool sequence = false);
  std::int64_t stream_rows(std::int64_t tokens) const { return tokens / token_parts; }
  std::int64_t qkv_cols() const { return (heads + 2 * kv_heads) * head_dim; }
  std::int64_t qk_cols() const { return (heads + kv_heads) * head_dim; }
  std::int64_t up_cols() const { return gated ? 2 * ffn : ffn; }  ///< of the MLP's first projection
};

/// Vocabulary rows over all tensor ranks, padding included: a multiple of tensor_size * vocab_multiple.
std::int64_t padded_vocab(const ModelConfig& config, int tensor_size);

/// Data type of activations and weights, and of statistics and sums.
DType data_dtype(Compute compute);
DType stats_dtype(Compute compute);

}  // namespace llmtrain
