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
  return {std::move(name), {out, in}, split, {Init::Kind::normal, stddev}, units, 0};
}

StorageSpec norm_weight(std::string storage, std::string section, std::int64_t n) {
  return {std::move(storage), {{std::move(section), {n}, SplitAxis::none, {Init::Kind::constant, 1.0}, 0, 0}}, false};
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

void add_block(TableWriter& table, const ModelConfig& c, std::int64_t layer) {
  const std::string hf = fmt::format("model.layers.{}.", layer);
  const std::string name = fmt::format("layers.{}.", layer);
  const std::int64_t q_rows = c.heads * c.head_dim;
  const std::int64_t kv_rows = c.kv_heads * c.head_dim;
  const double std_in = c.init_std;
  // Projections back into the residual stream start smaller, so that its variance does not grow with depth (GPT-2).
  const double std_out = c.init_std / std::sqrt(2.0 * static_cast<double>(c.layers));
  table.lease(fmt::format("block {}", layer));
  table.add(norm_weight(name + "norm_1", hf + "input_layernorm.weight", c.hidden));
  table.add({name + "qkv",
             {matrix(hf + "self_attn.q_proj.weight", q_rows, c.hidden, SplitAxis::rows, std_in, c.heads),
              matrix(hf + "self_attn.k_proj.weight", kv_rows, c.hidden, SplitAxis::rows, std_in, c.kv_heads),
              matrix(hf + "self_attn.v_proj.weight", kv_rows, c.hidden, SplitAxis::rows, std_in, c.kv_heads)}});
  table.add(
      {name + "o", {matrix(hf + "self_attn.o_proj.weight", c.hidden, q_rows, SplitAxis::cols, std_out, c.heads)}});
  table.add(norm_weight(name + "norm_2", hf + "post_attention_layernorm.weight", c.hidden));
  table.add({name + "gate_up",
             {matrix(hf + "mlp.gate_proj.weight", c.ffn, c.hidden, SplitAxis::rows, std_in),
              matrix(hf + "mlp.up_proj.weight", c.ffn, c.hidden, SplitAxis::rows, std_in)}});
  table.add({name + "down", {matrix(hf + "mlp.down_proj.weight", c.hidden, c.ffn, SplitAxis::cols, std_out)}});
}

}  // namespace

ParamTable make_param_table(const ModelConfig& c, int tensor_size) {
  ParamTable params;
  TableWriter table(params);
  const auto vocab_matrix = [&](const char* name) {
    Section section = matrix(name, c.vocab, c.hidden, SplitAxis::rows, c.init_std);
    section.padded_rows = padded_vocab(c, tensor_size);
    return section;
  };
  table.lease("embedding");
  const int embedding = table.add({"embedding", {vocab_matrix("model.embed_tokens.weight")}});
  for (std::int64_t layer = 0; layer < c.layers; ++layer) add_block(table, c, layer);
  table.lease("head");
  table.add(norm_weight("final_norm", "model.norm.weight", c.hidden));
  if (c.tied) {
    table.share(embedding);
  } else {
    table.add({"head", {vocab_matrix("lm_head.weight")}});
  }
  return params;
}

}  // namespace llmtrain
