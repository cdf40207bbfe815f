// SPDX-License-Identifier: Apache-2.0
/// The parameters of a model, one row each, and the plain structs in which layers see them.
#pragma once

#include <span>

#include "llmtrain/config/deck.hpp"
#include "llmtrain/parallel/linear.hpp"
#include "llmtrain/params/param_table.hpp"

namespace llmtrain {

/// Rows of the whole model; `config` must be resolved. Leases: embedding, blocks in order, head.
ParamTable make_param_table(const ModelConfig& config, int tensor_size);

/// Lease numbers of a model of `layers` blocks.
inline int embedding_lease() { return 0; }
inline int block_lease(std::int64_t layer) { return 1 + static_cast<int>(layer); }
inline int head_lease(std::int64_t layers) { return 1 + static_cast<int>(layers); }

/// The storage tensors of a lease, taken in the order of the table's rows; T is Tensor for weights, Gradient for
/// accumulators. What a model does not have is T{}.
template <class T>
class LeaseReader {
 public:
  explicit LeaseReader(std::span<const T> tensors) : left_(tensors) {}
  T take() {
    const T first = left_[0];
    left_ = left_.subspan(1);
    return first;
  }
  T take_if(bool present) { return present ? take() : T{}; }
  LinearParams<T> linear(bool bias) {
    const T weight = take();
    return {weight, take_if(bias)};
  }

 private:
  std::span<const T> left_;
};

/// Whether every linear layer of the blocks has a bias (else q, k and v alone may have).
inline bool all_biases(const ModelConfig& config) { return config.family == Family::gpt; }

template <class T>
struct AttentionParams {
  LinearParams<T> qkv;  // [(heads + 2 kv_heads) head_dim, hidden]
  T qk_norm;            // [2 head_dim]: of q, of k
  LinearParams<T> o;    // [hidden, heads head_dim]
};

template <class T>
struct MlpParams {
  LinearParams<T> up;    // [2 ffn, hidden] (gate, up) or [ffn, hidden]
  LinearParams<T> down;  // [hidden, ffn]
};

template <class T>
struct BlockParams {
  T norm_1;  // [hidden], or [2 hidden]: weight, bias
  AttentionParams<T> attention;
  T norm_2;
  MlpParams<T> mlp;

  BlockParams(std::span<const T> tensors, const ModelConfig& config) {
    const bool biases = all_biases(config);
    LeaseReader<T> lease(tensors);
    norm_1 = lease.take();
    attention.qkv = lease.linear(config.qkv_bias);
    attention.qk_norm = lease.take_if(config.qk_norm);
    attention.o = lease.linear(biases);
    norm_2 = lease.take();
    mlp.up = lease.linear(biases);
    mlp.down = lease.linear(biases);
  }
};

/// The embedding's storage tensors.
template <class T>
struct EmbeddingParams {
  T tokens;     // [vocab, hidden]
  T positions;  // [seq_len, hidden] where positions are learned

  EmbeddingParams(std::span<const T> t, const ModelConfig& config)
      : tokens(t[0]), positions(config.positions == Positions::learned ? t[1] : T{}) {}
};

/// The head's storage tensors.
template <class T>
struct HeadParams {
  T norm;    // [hidden], or [2 hidden]: weight, bias
  T weight;  // [vocab, hidden]

  explicit HeadParams(std::span<const T> t) : norm(t[0]), weight(t[1]) {}
};

}  // namespace llmtrain
