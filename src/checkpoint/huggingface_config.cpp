// SPDX-License-Identifier: Apache-2.0
/// config.json in the form that transformers 4 and 5 read: what 5 renamed stands under its first name.
#include "huggingface_names.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/json.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/checkpoint/huggingface.hpp"

namespace llmtrain {

namespace {

/// An object with one member a line.
class Lines {
 public:
  template <class T>
  void add(std::string_view key, const T& value) {
    put(key, detail::to_json(value));
  }
  /// A number that stays one with a point for readers that tell whole ones from others.
  void add_real(std::string_view key, double value) { put(key, real(value)); }
  void add_null(std::string_view key) { put(key, "null"); }
  void add_token(std::string_view key, std::optional<std::int32_t> token) {
    put(key, token ? std::to_string(*token) : "null");
  }
  void put(std::string_view key, const std::string& json) {
    text_ += fmt::format("{}\n  {}: {}", text_.empty() ? "{" : ",", json_string(key), json);
  }
  std::string text() const { return text_ + "\n}\n"; }

  static std::string real(double value) {
    const std::string digits = shortest(value);
    return digits.find_first_of(".e") == std::string::npos ? digits + ".0" : digits;
  }

 private:
  std::string text_;
};

std::string_view torch_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::fp16 ? "float16" : "float32";
}

void add_gpt2(Lines& lines, const ModelConfig& m) {
  lines.add("n_layer", m.layers);
  lines.add("n_embd", m.hidden);
  lines.add("n_head", m.heads);
  lines.add("n_inner", m.ffn);
  lines.add("n_positions", m.seq_len);
  lines.add("activation_function", m.activation == Activation::gelu ? "gelu" : "gelu_new");
  lines.add_real("layer_norm_epsilon", m.norm_eps);
  lines.add_real("embd_pdrop", m.dropout);
  lines.add_real("resid_pdrop", m.dropout);
  lines.add_real("attn_pdrop", 0);
  lines.add("scale_attn_weights", true);
}

void add_llama(Lines& lines, const ModelConfig& m, Architecture architecture) {
  lines.add("num_hidden_layers", m.layers);
  lines.add("hidden_size", m.hidden);
  lines.add("intermediate_size", m.ffn);
  lines.add("num_attention_heads", m.heads);
  lines.add("num_key_value_heads", m.kv_heads);
  lines.add("head_dim", m.head_dim);
  lines.add("max_position_embeddings", m.seq_len);
  lines.add("hidden_act", "silu");
  lines.add_real("rms_norm_eps", m.norm_eps);
  lines.add_real("attention_dropout", 0);
  if (architecture == Architecture::llama) lines.add("mlp_bias", false);
  if (architecture != Architecture::qwen2) lines.add("attention_bias", false);
  if (architecture != Architecture::llama) lines.add("use_sliding_window", false);
  lines.add_real("rope_theta", m.rope.theta);
  const RopeScaling& scaling = m.rope.scaling;
  if (scaling.factor == 0) {
    lines.add_null("rope_scaling");
  } else {
    lines.put(
        "rope_scaling",
        fmt::format("{{\"rope_type\": \"llama3\", \"factor\": {}, \"low_freq_factor\": {}, \"high_freq_factor\": {}, "
                    "\"original_max_position_embeddings\": {}}}",
                    Lines::real(scaling.factor), Lines::real(scaling.low_freq_factor),
                    Lines::real(scaling.high_freq_factor), scaling.original_max_position));
  }
}

}  // namespace

std::string huggingface_config(const ModelConfig& m, DType dtype, std::optional<std::int32_t> end_token) {
  const Architecture architecture = architecture_of(m);
  Lines lines;
  lines.add("architectures", JsonArray().add(facts_of(architecture).name));
  lines.add("model_type", facts_of(architecture).model_type);
  lines.add("vocab_size", m.vocab);
  if (architecture == Architecture::gpt2) {
    add_gpt2(lines, m);
  } else {
    add_llama(lines, m, architecture);
  }
  lines.add_real("initializer_range", m.init_std);
  lines.add("tie_word_embeddings", m.tied);
  lines.add_null("bos_token_id");
  lines.add_token("eos_token_id", end_token);
  lines.add("torch_dtype", torch_name(dtype));
  lines.add("use_cache", true);
  return lines.text();
}

std::string huggingface_generation_config(std::optional<std::int32_t> end_token) {
  Lines lines;
  lines.add_null("bos_token_id");
  lines.add_token("eos_token_id", end_token);
  lines.add_token("pad_token_id", end_token);
  return lines.text();
}

}  // namespace llmtrain
