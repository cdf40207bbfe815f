// SPDX-License-Identifier: Apache-2.0
/// Keys of `model`: the shape of the network.
#include "llmtrain/config/key.hpp"
#include "llmtrain/config/presets.hpp"

namespace llmtrain {
namespace {

using M = ModelConfig;

std::vector<Key> rope_keys(const Rows<M>& row) {
  return {
      row("rope.theta", [](M & m) -> auto& { return m.rope.theta; },
          {.meaning = "Base of the rotary frequencies.",
           .range = Range::above_to(0, 1e12),
           .also = {"rope_theta", "rotary_base", "rope_base", "base"}}),
      row("rope.scaling.factor", [](M & m) -> auto& { return m.rope.scaling.factor; },
          {.meaning = "Llama-3.1 stretch of long wavelengths; 0 = no scaling.",
           .range = Range::zero_or_between(1, 1e6),
           .also = {"scale", "rope_scaling_factor"}}),
      row("rope.scaling.low_freq_factor", [](M & m) -> auto& { return m.rope.scaling.low_freq_factor; },
          {.meaning = "Wavelengths longer than original_max_position / this are divided by factor in full.",
           .range = Range::above_to(0, 1e6)}),
      row("rope.scaling.high_freq_factor", [](M & m) -> auto& { return m.rope.scaling.high_freq_factor; },
          {.meaning = "Wavelengths shorter than original_max_position / this are kept.",
           .range = Range::above_to(0, 1e6)}),
      row("rope.scaling.original_max_position", [](M & m) -> auto& { return m.rope.scaling.original_max_position; },
          {.meaning = "Sequence length that the unscaled frequencies were trained on.",
           .range = Range::between(1, 1e9),
           .unit = "tokens",
           .also = {"original_max_position_embeddings"}}),
  };
}

std::vector<Key> size_keys(const Rows<M>& row) {
  return {
      row("family", &M::family,
          {.meaning = "llama: RMSNorm, SwiGLU, rotary positions; gpt: LayerNorm, GeLU, learned positions, biases.",
           .names = {"llama", "gpt"},
           .also = {"model_type", "arch", "architecture", "type"}}),
      row("preset", &M::preset,
          {.meaning = "A published model's shape, applied before the deck's own keys.",
           .names = preset_names(),
           .also = {"base_model", "flavor", "model_name"},
           .may_be_empty = true}),
      row("layers", &M::layers,
          {.meaning = "Transformer blocks.",
           .range = Range::between(1, 10000),
           .unit = "layers",
           .also = {"num_layers", "n_layer", "n_layers", "num_hidden_layers", "depth"}}),
      row("hidden", &M::hidden,
          {.meaning = "Width of the residual stream.",
           .range = Range::between(1, 1e6),
           .unit = "features",
           .also = {"hidden_size", "d_model", "n_embd", "dim", "embedding_dim", "width", "model_dim"}}),
      row("heads", &M::heads,
          {.meaning = "Attention heads (of the queries).",
           .range = Range::between(1, 1e5),
           .unit = "heads",
           .also = {"num_attention_heads", "n_head", "n_heads", "num_heads"}}),
      row("kv_heads", &M::kv_heads,
          {.meaning = "Heads of keys and values; heads / kv_heads queries share one.",
           .range = Range::between(1, 1e5),
           .unit = "heads",
           .also = {"num_key_value_heads", "num_query_groups", "n_kv_heads", "num_kv_heads"}}),
      row("head_dim", &M::head_dim,
          {.meaning = "Width of a head; 0 = hidden / heads.",
           .range = Range::between(0, 1e5),
           .unit = "features",
           .also = {"kv_channels", "d_head", "head_size"}}),
      row("ffn", &M::ffn,
          {.meaning = "Width of the MLP between its two projections.",
           .range = Range::between(1, 1e7),
           .unit = "features",
           .also = {"ffn_hidden_size", "intermediate_size", "d_ff", "mlp_dim", "ffn_dim", "hidden_dim"}}),
      row("seq_len", &M::seq_len,
          {.meaning = "Length of a training sequence.",
           .range = Range::between(1, 16777216),
           .unit = "tokens",
           .also = {"seq_length", "sequence_length", "max_seq_len", "block_size", "context_length", "n_ctx",
                    "max_position_embeddings"}}),
      row("vocab", &M::vocab,
          {.meaning = "Size of the vocabulary; 0 = the tokenizer's.",
           .range = Range::between(0, 1e8),
           .unit = "tokens",
           .also = {"vocab_size", "n_vocab", "padded_vocab_size"}}),
      row("vocab_multiple", &M::vocab_multiple,
          {.meaning = "Pad the vocabulary inside to tensor x this; 0 = 128 on a GPU, 16 on a CPU.",
           .range = Range::between(0, 65536),
           .unit = "tokens",
           .also = {"make_vocab_size_divisible_by", "vocab_padding"}}),
  };
}

std::vector<Key> part_keys(const Rows<M>& row) {
  return {
      row("norm_eps", &M::norm_eps,
          {.meaning = "Added to the variance in every norm.",
           .range = Range::above_to(0, 1),
           .also = {"rms_norm_eps", "layer_norm_eps", "layernorm_epsilon", "norm_epsilon"}}),
      row("tied", &M::tied,
          {.meaning = "Embedding and LM head share one matrix.",
           .also = {"tie_word_embeddings", "tie_embeddings", "weight_tying", "untie_embeddings_and_output_weights"}}),
      row("qkv_bias", &M::qkv_bias,
          {.meaning = "Biases on the query, key and value projections (Qwen2; gpt always).",
           .also = {"attention_bias", "add_qkv_bias"}}),
      row("qk_norm", &M::qk_norm,
          {.meaning = "RMSNorm on every head of queries and keys before rope (Qwen3).",
           .also = {"qk_layernorm", "qk_layer_norm"}}),
      row("activation", &M::activation,
          {.meaning =
               "Non-linearity of the MLP: silu with a gate (llama), gelu or gelu_tanh (gpt; that is what it implies).",
           .names = {"silu", "gelu", "gelu_tanh"},
           .also = {"hidden_act", "activation_function", "act"}}),
      row("positions", &M::positions,
          {.meaning =
               "How positions enter: rotary (llama), or a learned vector each, up to seq_len (what gpt implies).",
           .names = {"rope", "learned"},
           .also = {"position_embedding_type", "pos_emb", "positional_encoding"}}),
  };
}

}  // namespace

Block model_block() {
  const Rows<M> row("model", &Deck::model);
  Block block{"model", "The shape of the network.", size_keys(row)};
  for (Key& key : part_keys(row)) block.keys.push_back(key);
  for (Key& key : rope_keys(row)) block.keys.push_back(key);
  block.keys.push_back(row("dropout", &M::dropout,
                           {.meaning = "Probability of dropping on the embedding and the two residual branches.",
                            .range = Range::from_below(0, 1),
                            .also = {"hidden_dropout", "resid_pdrop", "dropout_p", "embd_pdrop"}}));
  block.keys.push_back(row("init_std", &M::init_std,
                           {.meaning = "Standard deviation of the initial weights.",
                            .range = Range::above_to(0, 100),
                            .also = {"init_method_std", "initializer_range", "init_scale"}}));
  return block;
}

}  // namespace llmtrain
