// SPDX-License-Identifier: Apache-2.0
/// The parameters of a model, one row each, and the plain structs in which layers see them.
#pragma once

#include <span>

#include "llmtrain/config/deck.hpp"
#include "llmtrain/params/param_table.hpp"

namespace llmtrain {

/// Rows of the whole model; `config` must be resolved. Leases: embedding, blocks in order, head.
ParamTable make_param_table(const ModelConfig& config, int tensor_size);

/// Lease numbers of a model of `layers` blocks.
inline int embedding_lease() { return 0; }
inline int block_lease(std::int64_t layer) { return 1 + static_cast<int>(layer); }
inline int head_lease(std::int64_t layers) { return 1 + static_cast<int>(layers); }

/// A block's storage tensors in table order; T is Tensor for weights, Gradient for accumulators.
template <class T>
struct BlockParams {
  T norm_1;   // [hidden]
  T qkv;      // [(heads + 2 kv_heads) head_dim, hidden]
  T o;        // [hidden, heads head_dim]
  T norm_2;   // [hidden]
  T gate_up;  // [2 ffn, hidden]
  T down;     // [hidden, ffn]

  explicit BlockParams(std::span<const T> t)
      : norm_1(t[0]), qkv(t[1]), o(t[2]), norm_2(t[3]), gate_up(t[4]), down(t[5]) {}
};

/// The head's storage tensors.
template <class T>
struct HeadParams {
  T norm;    // [hidden]
  T weight;  // [vocab, hidden]

  explicit HeadParams(std::span<const T> t) : norm(t[0]), weight(t[1]) {}
};

}  // namespace llmtrain
