// SPDX-License-Identifier: Apache-2.0
/// From config.json to a model of llmtrain: what is missing has transformers' own defaults, what has no counterpart is
/// refused by name.
#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>
#include <simdjson.h>

#include "huggingface_names.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/json.hpp"
#include "llmtrain/checkpoint/huggingface.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/config/read.hpp"

namespace llmtrain {

namespace {

namespace dom = simdjson::dom;

/// Members of an object; null counts as missing, as in transformers.
class Members {
 public:
  Members(dom::object object, std::string_view where) : object_(object), where_(where) {}

  bool has(std::string_view name) const {
    dom::element element;
    return object_[name].get(element) == simdjson::SUCCESS && !element.is_null();
  }

  /// Nothing where it is missing.
  template <class T>
  std::optional<T> find(std::string_view name, std::string_view type) const {
    T value{};
    if (!has(name)) return std::nullopt;
    require(object_[name].get(value) == simdjson::SUCCESS, ExitCode::bad_input, "{}: '{}' is not {}", where_, name,
            type);
    return value;
  }

  std::int64_t integer(std::string_view name, std::optional<std::int64_t> otherwise = {}) const {
    const auto value = find<std::int64_t>(name, "a whole number");
    require(value || otherwise, ExitCode::bad_input, "{}: '{}' is missing", where_, name);
    return value ? *value : *otherwise;
  }
  double real(std::string_view name, double otherwise) const {
    return find<double>(name, "a number").value_or(otherwise);
  }
  bool flag(std::string_view name, bool otherwise) const {
    return find<bool>(name, "true or false").value_or(otherwise);
  }
  std::string text(std::string_view name, std::string_view otherwise) const {
    return std::string(find<std::string_view>(name, "a text").value_or(otherwise));
  }
  std::optional<Members> object(std::string_view name) const {
    const auto found = find<dom::object>(name, "an object");
    return found ? std::optional(Members(*found, where_)) : std::nullopt;
  }
  std::vector<std::string> texts(std::string_view name) const {
    std::vector<std::string> list;
    const auto found = find<dom::array>(name, "a list");
    if (!found) return list;
    for (const dom::element element : *found) {
      std::string_view text;
      require(element.get(text) == simdjson::SUCCESS, ExitCode::bad_input, "{}: '{}' is not a list of texts", where_,
              name);
      list.emplace_back(text);
    }
    return list;
  }

  /// Throws unless `holds`, for a model that llmtrain does not have.
  void need(bool holds, std::string_view name, const std::string& value, std::string_view remedy) const {
    require(holds, ExitCode::checkpoint_incompatible, "{}: {} {} has no counterpart in llmtrain: {}", where_, name,
            json_string(value.substr(0, 100)), remedy);
  }
  void need_flag(std::string_view name, bool wanted, std::string_view remedy) const {
    need(flag(name, wanted) == wanted, name, wanted ? "false" : "true", remedy);
  }

 private:
  dom::object object_;
  std::string_view where_;
};

const ArchitectureFacts& architecture_in(const Members& config) {
  const std::string type = config.text("model_type", "");
  const auto found = std::ranges::find(architectures, type, &ArchitectureFacts::model_type);
  config.need(found != architectures.end(), "model_type", type, "llama, qwen2, qwen3 and gpt2 can be imported");
  return *found;
}

/// Rotary frequencies: rope_theta and rope_scaling, or rope_parameters as transformers 5 writes them.
RopeConfig read_rope(const Members& config) {
  RopeConfig rope;
  rope.theta = config.real("rope_theta", 10000);
  std::optional<Members> scaling = config.object("rope_scaling");
  if (!scaling) scaling = config.object("rope_parameters");
  if (!scaling) return rope;
  rope.theta = scaling->real("rope_theta", rope.theta);
  const std::string type = scaling->text("rope_type", scaling->text("type", "default"));
  scaling->need(type == "default" || type == "llama3", "rope_type", type, "only llama3's scaling is built");
  scaling->need(scaling->real("partial_rotary_factor", 1) == 1, "partial_rotary_factor", "other than 1",
                "all features of a head are turned");
  if (type == "default") return rope;
  rope.scaling.factor = scaling->real("factor", 0);
  rope.scaling.low_freq_factor = scaling->real("low_freq_factor", 0);
  rope.scaling.high_freq_factor = scaling->real("high_freq_factor", 0);
  rope.scaling.original_max_position = scaling->integer("original_max_position_embeddings");
  return rope;
}

void read_llama(const Members& config, Architecture architecture, ModelConfig& m) {
  m.family = Family::llama;
  m.layers = config.integer("num_hidden_layers");
  m.hidden = config.integer("hidden_size");
  m.ffn = config.integer("intermediate_size");
  m.heads = config.integer("num_attention_heads");
  m.kv_heads = config.integer("num_key_value_heads", m.heads);
  m.head_dim = config.integer("head_dim", architecture == Architecture::qwen3 ? 128 : 0);
  m.seq_len = config.integer("max_position_embeddings", architecture == Architecture::llama ? 2048 : 32768);
  m.norm_eps = config.real("rms_norm_eps", 1e-6);
  m.tied = config.flag("tie_word_embeddings", false);
  m.qkv_bias = architecture == Architecture::qwen2;
  m.qk_norm = architecture == Architecture::qwen3;
  m.rope = read_rope(config);
  const std::string activation = config.text("hidden_act", "silu");
  config.need(activation == "silu", "hidden_act", activation, "model.family llama has silu");
  config.need_flag("attention_bias", false, "its output projection has a bias too");
  config.need_flag("mlp_bias", false, "model.family llama has no biases there");
  config.need_flag("use_sliding_window", false, "attention has no window");
  config.need(config.real("partial_rotary_factor", 1) == 1, "partial_rotary_factor", "other than 1",
              "all features of a head are turned");
  for (const std::string& layer : config.texts("layer_types")) {
    config.need(layer == "full_attention", "layer_types", layer, "attention has no window");
  }
}

void read_gpt2(const Members& config, ModelConfig& m) {
  m.family = Family::gpt;
  m.positions = Positions::learned;
  m.qkv_bias = true;
  m.layers = config.integer("n_layer");
  m.hidden = config.integer("n_embd");
  m.heads = config.integer("n_head");
  m.kv_heads = m.heads;
  const auto ffn = config.find<std::int64_t>("n_inner", "a whole number");
  require(ffn || m.hidden <= 1'000'000, ExitCode::bad_input, "n_embd {} is too large", m.hidden);
  m.ffn = ffn ? *ffn : 4 * m.hidden;
  m.seq_len = config.integer("n_positions");
  m.norm_eps = config.real("layer_norm_epsilon", 1e-5);
  m.tied = config.flag("tie_word_embeddings", true);
  m.dropout = config.real("resid_pdrop", 0.1);
  const std::string activation = config.text("activation_function", "gelu_new");
  m.activation = activation == "gelu" ? Activation::gelu : Activation::gelu_tanh;
  config.need(activation == "gelu" || activation == "gelu_new" || activation == "gelu_pytorch_tanh",
              "activation_function", activation, "model.family gpt has gelu and gelu_tanh (gelu_new)");
  config.need_flag("scale_attn_weights", true, "attention is scaled by the root of head_dim");
  config.need_flag("scale_attn_by_inverse_layer_idx", false, "attention is scaled alike in all layers");
  config.need_flag("add_cross_attention", false, "there is one stream of tokens");
}

/// The model with its ranges and rules checked as a deck's.
ModelConfig checked(const ModelConfig& model, std::string_view where) {
  Deck deck;
  deck.model = model;
  try {
    return parse_deck(to_yaml(deck), "model").model;
  } catch (const Error& error) {
    std::string lines = error.what();
    std::ranges::replace(lines, '\n', ';');
    fail(ExitCode::bad_input, "{} describes no model that llmtrain can hold: {}", where, lines);
  }
}

}  // namespace

ModelConfig read_huggingface_config(std::string_view json, std::string_view where) {
  dom::parser parser;
  dom::object object;
  require(parser.parse(json.data(), json.size()).get(object) == simdjson::SUCCESS, ExitCode::bad_input,
          "{} is not a JSON object", where);
  const Members config(object, where);
  const ArchitectureFacts& facts = architecture_in(config);
  ModelConfig model;
  model.vocab = config.integer("vocab_size");
  if (facts.architecture == Architecture::gpt2) {
    read_gpt2(config, model);
  } else {
    read_llama(config, facts.architecture, model);
  }
  model.init_std = config.real("initializer_range", 0.02);
  config.need(!config.has("quantization_config"), "quantization_config", "", "load and save the model unquantised");
  return checked(model, where);
}

}  // namespace llmtrain
