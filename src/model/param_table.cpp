// SPDX-License-Identifier: Apache-2.0
/// The one list of a model's parameters: name, shape, split over tensor ranks, initial values, weight decay.
#include "llmtrain/model/param_table.hpp"

#include <fmt/format.h>

#include <cmath>

#include "llmtrain/model/shapes.hpp"

namespace llmtrain {

namespace {

Section matrix(std::string name, std::int64_t out, std::int64_t in, SplitAxis split, double stddev,
               std::int64_t units = 0) {
  return {std::move(name), {out, in}, split, {Init::Kind::normal, stddev}, units};
}

Section vector(std::string name, std::int64_t n, double value, SplitAxis split = SplitAxis::none,
               std::int64_t units = 0) {
  return {std::move(name), {n}, split, {Init::Kind::constant, value}, units};
}

Section with(GradientOver over, Section section) {
  section.gradient_over = over;
  return section;
}

/// Applied to the stream: a norm's weight or bias, the bias of a projection into it.
Section stream_vector(std::string name, std::int64_t n, double value) {
  return with(GradientOver::tokens, vector(std::move(name), n, value));
}

/// Norm weights and biases are not decayed.
StorageSpec undecayed(std::string storage, std::vector<Section> sections) {
  return {std::move(storage), std::move(sections), false};
}

/// Adds storages to the table and to the lease being written.
class TableWriter {
 public:
  explicit TableWriter(ParamTable& table) : table_(table) {}
  void lease(std::string name) { table_.leases.push_back({std::move(name), {}}); }
  int add(StorageSpec storage) {
    const int index = static_cast<int>(table_.storages.size());
    table_.storages.push_back(std::move(storage));
    share(index);
    return index;
  }
  void share(int storage) { table_.leases.back().storages.push_back(storage); }

 private:
  ParamTable& table_;
};

/// Sizes that both families' blocks need.
struct BlockSizes {
  explicit BlockSizes(const ModelConfig& c)
      : q_rows(c.heads * c.head_dim),
        kv_rows(c.kv_heads * c.head_dim),
        std_in(c.init_std),
        std_out(c.init_std / std::sqrt(2.0 * static_cast<double>(c.layers))) {}
  std::int64_t q_rows, kv_rows;
  double std_in;
  double std_out;  ///< of projections into the residual stream, so that its variance does not grow with depth (GPT-2)
};

/// Rows of q, k and v; `bias` adds the storage of their biases. Tensor ranks that share heads of k and v have the gradients
/// of their own query heads.
void add_qkv(TableWriter& table, const ModelConfig& c, const std::string& name, const std::string& at, bool bias) {
  const BlockSizes size(c);
  const auto rows = SplitAxis::rows;
  const auto heads = GradientOver::heads;
  table.add({name + "qkv",
             {matrix(at + "q_proj.weight", size.q_rows, c.hidden, rows, size.std_in, c.heads),
              with(heads, matrix(at + "k_proj.weight", size.kv_rows, c.hidden, rows, size.std_in, c.kv_heads)),
              with(heads, matrix(at + "v_proj.weight", size.kv_rows, c.hidden, rows, size.std_in, c.kv_heads))}});
  if (!bias) return;
  table.add(undecayed(name + "qkv_bias", {vector(at + "q_proj.bias", size.q_rows, 0, rows, c.heads),
                                          with(heads, vector(at + "k_proj.bias", size.kv_rows, 0, rows, c.kv_heads)),
                                          with(heads, vector(at + "v_proj.bias", size.kv_rows, 0, rows, c.kv_heads))}));
}

/// Names are those of Hugging Face's Llama, Qwen2 and Qwen3.
void add_llama_block(TableWriter& table, const ModelConfig& c, std::int64_t layer) {
  const std::string hf = fmt::format("model.layers.{}.", layer), attention = hf + "self_attn.";
  const std::string name = fmt::format("layers.{}.", layer);
  const BlockSizes size(c);
  table.add(undecayed(name + "norm_1", {stream_vector(hf + "input_layernorm.weight", c.hidden, 1)}));
  add_qkv(table, c, name, attention, c.qkv_bias);
  if (c.qk_norm) {
    table.add(
        undecayed(name + "qk_norm", {with(GradientOver::heads, vector(attention + "q_norm.weight", c.head_dim, 1)),
                                     with(GradientOver::heads, vector(attention + "k_norm.weight", c.head_dim, 1))}));
  }
  table.add({name + "o",
             {matrix(attention + "o_proj.weight", c.hidden, size.q_rows, SplitAxis::cols, size.std_out, c.heads)}});
  table.add(undecayed(name + "norm_2", {stream_vector(hf + "post_attention_layernorm.weight", c.hidden, 1)}));
  table.add({name + "gate_up",
             {matrix(hf + "mlp.gate_proj.weight", c.ffn, c.hidden, SplitAxis::rows, size.std_in),
              matrix(hf + "mlp.up_proj.weight", c.ffn, c.hidden, SplitAxis::rows, size.std_in)}});
  table.add({name + "down", {matrix(hf + "mlp.down_proj.weight", c.hidden, c.ffn, SplitAxis::cols, size.std_out)}});
}

/// Weight and bias of a LayerNorm in one storage.
StorageSpec layer_norm(std::string storage, const std::string& at, std::int64_t n) {
  return undecayed(std::move(storage), {stream_vector(at + ".weight", n, 1), stream_vector(at + ".bias", n, 0)});
}

/// Names are those of Hugging Face's GPT-2, but for attention: its fused c_attn is q_proj, k_proj and v_proj here, its
/// c_proj is o_proj. Matrices are stored [out, in]; Hugging Face's GPT-2 stores [in, out].
void add_gpt_block(TableWriter& table, const ModelConfig& c, std::int64_t layer) {
  const std::string hf = fmt::format("transformer.h.{}.", layer);
  const std::string name = fmt::format("layers.{}.", layer);
  const BlockSizes size(c);
  table.add(layer_norm(name + "norm_1", hf + "ln_1", c.hidden));
  add_qkv(table, c, name, hf + "attn.", c.qkv_bias);
  table.add(
      {name + "o", {matrix(hf + "attn.o_proj.weight", c.hidden, size.q_rows, SplitAxis::cols, size.std_out, c.heads)}});
  table.add(undecayed(name + "o_bias", {stream_vector(hf + "attn.o_proj.bias", c.hidden, 0)}));
  table.add(layer_norm(name + "norm_2", hf + "ln_2", c.hidden));
  table.add({name + "fc", {matrix(hf + "mlp.c_fc.weight", c.ffn, c.hidden, SplitAxis::rows, size.std_in)}});
  table.add(undecayed(name + "fc_bias", {vector(hf + "mlp.c_fc.bias", c.ffn, 0, SplitAxis::rows)}));
  table.add({name + "down", {matrix(hf + "mlp.c_proj.weight", c.hidden, c.ffn, SplitAxis::cols, size.std_out)}});
  table.add(undecayed(name + "down_bias", {stream_vector(hf + "mlp.c_proj.bias", c.hidden, 0)}));
}

}  // namespace

ParamTable make_param_table(const ModelConfig& c, int tensor_size) {
  const bool gpt = c.family == Family::gpt;
  ParamTable params;
  TableWriter table(params);
  const auto vocab_matrix = [&](const char* name) {
    Section section = matrix(name, c.vocab, c.hidden, SplitAxis::rows, c.init_std);
    section.padded_rows = padded_vocab(c, tensor_size);
    return section;
  };
  table.lease("embedding");
  const int embedding =
      table.add({"embedding", {vocab_matrix(gpt ? "transformer.wte.weight" : "model.embed_tokens.weight")}});
  if (c.positions == Positions::learned) {
    table.add({"positions",
               {with(GradientOver::tokens,
                     matrix("transformer.wpe.weight", c.seq_len, c.hidden, SplitAxis::none, c.init_std))}});
  }
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    table.lease(fmt::format("block {}", layer));
    (gpt ? add_gpt_block : add_llama_block)(table, c, layer);
  }
  table.lease("head");
  table.add(gpt ? layer_norm("final_norm", "transformer.ln_f", c.hidden)
                : undecayed("final_norm", {stream_vector("model.norm.weight", c.hidden, 1)}));
  if (c.tied) {
    table.share(embedding);
  } else {
    table.add({"head", {vocab_matrix("lm_head.weight")}});
  }
  return params;
}

}  // namespace llmtrain
