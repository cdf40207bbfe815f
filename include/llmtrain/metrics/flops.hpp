// SPDX-License-Identifier: Apache-2.0
/// Parameter counts and floating-point operations of a model by formula, with the true vocabulary, not the padded one.
#pragma once

#include <cstdint>

#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// Parameters of the whole model. A matmul parameter takes part in one multiply-add a token.
struct ParameterCounts {
  std::int64_t embedding = 0;       ///< token embedding [vocab, hidden]
  std::int64_t positions = 0;       ///< learned positions [seq_len, hidden]
  std::int64_t block_matrices = 0;  ///< weight matrices of one block
  std::int64_t block_vectors = 0;   ///< norms and biases of one block
  std::int64_t final_norm = 0;
  std::int64_t head = 0;    ///< LM head [vocab, hidden], shared with the embedding when tied
  std::int64_t total = 0;   ///< each stored parameter once
  std::int64_t matmul = 0;  ///< N: block matrices and LM head, tied or not; not the input embedding
};

/// FLOPs a token of forward and backward together, nothing recomputed. With N = ParameterCounts::matmul, L layers,
/// d = heads x head_dim, s = sequence length. Multiply and add count as two.
struct FlopsPerToken {
  double six_n = 0;   ///< 6 N: no attention
  double causal = 0;  ///< convention A, 6 N + 6 L d s: attention over the causal half (Megatron-LM since 2025, llm.c)
  double full = 0;    ///< convention B, 6 N + 12 L d s: attention over the whole square (PaLM, nanoGPT, torchtitan)
};

/// `model` must have its vocab resolved; head_dim 0 is hidden / heads.
ParameterCounts count_parameters(const ModelConfig& model);

/// At the sequence length model.seq_len. Same conditions as count_parameters().
FlopsPerToken flops_per_token(const ModelConfig& model);

}  // namespace llmtrain
