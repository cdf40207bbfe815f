// SPDX-License-Identifier: Apache-2.0
/// Which tensors a Hugging Face architecture has: the rows of the parameter table, fused and transposed where GPT-2's are.
#include "huggingface_names.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/checkpoint/huggingface.hpp"
#include "llmtrain/config/key.hpp"
#include "llmtrain/model/param_table.hpp"

namespace llmtrain {

namespace {

/// A tensor that holds the sections one after the other.
FileTensor stacked(std::string name, std::vector<Section> sections, bool transposed) {
  std::int64_t rows = 0;
  for (const Section& section : sections) rows += section.rows();
  FileTensor tensor{std::move(name), {rows}, transposed, std::move(sections)};
  if (tensor.sections.front().shape.size() > 1) {
    tensor.shape.insert(transposed ? tensor.shape.begin() : tensor.shape.end(), tensor.sections.front().cols());
  }
  return tensor;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// GPT-2 keeps q, k and v in one tensor, calls the output projection c_proj, and stores the matrices of its blocks as
/// [in, out] ("Conv1D").
void add_gpt_storage(const StorageSpec& storage, std::vector<FileTensor>& tensors) {
  const Section& first = storage.sections.front();
  const bool transposed = first.name.starts_with("transformer.h.") && first.shape.size() > 1;
  if (first.name.find(".q_proj.") != std::string::npos) {
    tensors.push_back(stacked(replaced(first.name, "q_proj", "c_attn"), storage.sections, transposed));
    return;
  }
  for (const Section& section : storage.sections) {
    tensors.push_back(stacked(replaced(section.name, "o_proj", "c_proj"), {section}, transposed));
  }
}

[[noreturn]] void refuse(const std::string& what) {
  fail(ExitCode::checkpoint_incompatible,
       "no architecture of Hugging Face holds this model: {}; checkpoint consolidate writes any model's weights into "
       "one safetensors file",
       what);
}

}  // namespace

Architecture architecture_of(const ModelConfig& model) {
  if (model.family == Family::gpt) {
    if (model.kv_heads != model.heads)
      refuse(fmt::format("GPT-2 has as many kv_heads as heads, this model {} and {}", model.kv_heads, model.heads));
    if (model.heads * model.head_dim != model.hidden)
      refuse(fmt::format("GPT-2's heads fill hidden exactly, but {} heads of head_dim {} are not hidden {}",
                         model.heads, model.head_dim, model.hidden));
    return Architecture::gpt2;
  }
  if (model.qkv_bias && model.qk_norm)
    refuse("qkv_bias with qk_norm (Qwen2 has the biases, Qwen3 the norms and a bias on the output projection too)");
  if (model.qk_norm) return Architecture::qwen3;
  if (model.qkv_bias) return Architecture::qwen2;
  if (model.hidden % model.heads != 0)
    refuse(fmt::format("Llama's hidden is a multiple of its heads, but hidden is {} and heads {}", model.hidden,
                       model.heads));
  return Architecture::llama;
}

std::vector<FileTensor> huggingface_tensors(const ModelConfig& model) {
  if (architecture_of(model) != Architecture::gpt2) return plain_tensors(model);
  std::vector<FileTensor> tensors;
  for (const StorageSpec& storage : make_param_table(model, 1).storages) add_gpt_storage(storage, tensors);
  return tensors;
}

std::vector<FileTensor> plain_tensors(const ModelConfig& model) {
  std::vector<FileTensor> tensors;
  for (const StorageSpec& storage : make_param_table(model, 1).storages) {
    for (const Section& section : storage.sections) tensors.push_back(stacked(section.name, {section}, false));
  }
  return tensors;
}

std::vector<std::string> model_differences(const ModelConfig& stored, const ModelConfig& model) {
  Deck before, after;
  before.model = stored;
  after.model = model;
  std::vector<std::string> lines;
  for (const Block& block : deck_blocks()) {
    for (const Key& key : block.keys) {
      const bool is_free = key.path == "model.preset" || key.path == "model.vocab_multiple" ||
                           key.path == "model.dropout" || key.path == "model.init_std" ||
                           (key.path == "model.seq_len" && model.positions == Positions::rope);
      const std::string was = format_value(key, before), is = format_value(key, after);
      if (was != is && !is_free) lines.push_back(fmt::format("{:<36} stored {:<16} deck {}", key.path, was, is));
    }
  }
  return lines;
}

}  // namespace llmtrain
