// SPDX-License-Identifier: Apache-2.0
/// Division of the model's dimensions over tensor ranks.
#include "llmtrain/model/shapes.hpp"

#include <algorithm>

namespace llmtrain {

std::int64_t padded_vocab(const ModelConfig& config, int tensor_size) {
  const std::int64_t multiple = config.vocab_multiple * tensor_size;
  LLMTRAIN_CHECK(multiple > 0 && config.vocab > 0);
  return (config.vocab + multiple - 1) / multiple * multiple;
}

LocalShapes::LocalShapes(const ModelConfig& config, int tensor_rank, int tensor_size, bool sequence)
    : hidden(config.hidden),
      heads(config.heads / tensor_size),
      kv_heads(std::max<std::int64_t>(config.kv_heads / tensor_size, 1)),
      head_dim(config.head_dim),
      ffn(config.ffn / tensor_size),
      vocab(padded_vocab(config, tensor_size) / tensor_size),
      gated(config.activation == Activation::silu),
      layer_norm(config.family == Family::gpt),
      qk_norm(config.qk_norm),
      token_parts(sequence ? tensor_size : 1) {
  LLMTRAIN_CHECK(head_dim > 0);
  vocab_range.first = vocab * tensor_rank;
  vocab_range.valid = std::clamp<std::int64_t>(config.vocab - vocab_range.first, 0, vocab);
}

DType data_dtype(Compute compute) {
  switch (compute) {
    case Compute::bf16: return DType::bf16;
    case Compute::fp32: return DType::fp32;
    case Compute::fp64: return DType::fp64;
  }
  return DType::fp32;
}

DType stats_dtype(Compute compute) { return compute == Compute::fp64 ? DType::fp64 : DType::fp32; }

}  // namespace llmtrain
