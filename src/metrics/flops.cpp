// SPDX-License-Identifier: Apache-2.0
/// The formulas: one function a family fills in its block, the rest is common.
#include "llmtrain/metrics/flops.hpp"

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

std::int64_t head_dim_of(const ModelConfig& model) {
  return model.head_dim != 0 ? model.head_dim : model.hidden / model.heads;
}

/// Llama: RMSNorm (no bias) before attention and MLP; q, k, v, o with grouped K and V; SwiGLU with gate, up and down.
void count_llama_block(const ModelConfig& model, ParameterCounts& counts) {
  const std::int64_t head_dim = head_dim_of(model);
  const std::int64_t q_rows = model.heads * head_dim;
  const std::int64_t kv_rows = model.kv_heads * head_dim;
  const std::int64_t attention = model.hidden * (q_rows + 2 * kv_rows) + q_rows * model.hidden;
  const std::int64_t mlp = 3 * model.hidden * model.ffn;
  counts.block_matrices = attention + mlp;
  counts.block_vectors = 2 * model.hidden;
  if (model.qkv_bias) counts.block_vectors += q_rows + 2 * kv_rows;
  if (model.qk_norm) counts.block_vectors += 2 * head_dim;
  counts.final_norm = model.hidden;
}

/// GPT: LayerNorm with bias before attention and MLP; biases on all linear layers; an MLP of two matrices; learned
/// positions.
void count_gpt_block(const ModelConfig& model, ParameterCounts& counts) {
  const std::int64_t head_dim = head_dim_of(model);
  const std::int64_t q_rows = model.heads * head_dim;
  const std::int64_t kv_rows = model.kv_heads * head_dim;
  const std::int64_t attention = model.hidden * (q_rows + 2 * kv_rows) + q_rows * model.hidden;
  counts.block_matrices = attention + 2 * model.hidden * model.ffn;
  const std::int64_t norms = 4 * model.hidden;
  const std::int64_t biases = q_rows + 2 * kv_rows + model.hidden + model.ffn + model.hidden;
  counts.block_vectors = norms + biases;
  counts.final_norm = 2 * model.hidden;
  counts.positions = model.seq_len * model.hidden;
}

}  // namespace

ParameterCounts count_parameters(const ModelConfig& model) {
  LLMTRAIN_CHECK(model.vocab > 0 && model.heads > 0);
  ParameterCounts counts;
  switch (model.family) {
    case Family::llama: count_llama_block(model, counts); break;
    case Family::gpt: count_gpt_block(model, counts); break;
  }
  counts.embedding = model.vocab * model.hidden;
  counts.head = model.vocab * model.hidden;
  counts.matmul = model.layers * counts.block_matrices + counts.head;
  counts.total = counts.embedding + counts.positions + model.layers * (counts.block_matrices + counts.block_vectors) +
                 counts.final_norm + (model.tied ? 0 : counts.head);
  return counts;
}

FlopsPerToken flops_per_token(const ModelConfig& model) {
  const double six_n = 6.0 * static_cast<double>(count_parameters(model).matmul);
  const double layers_d_s = static_cast<double>(model.layers) * static_cast<double>(model.heads * head_dim_of(model)) *
                            static_cast<double>(model.seq_len);
  return {.six_n = six_n, .causal = six_n + 6 * layers_d_s, .full = six_n + 12 * layers_d_s};
}

}  // namespace llmtrain
