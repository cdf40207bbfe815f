// SPDX-License-Identifier: Apache-2.0
/// config.json: its text, what is read of other programs' ones, and what is refused.
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "huggingface_models.hpp"
#include "llmtrain/checkpoint/huggingface.hpp"

using namespace llmtrain;
using huggingface_test::code_of;
using huggingface_test::gpt;
using huggingface_test::llama;

TEST_CASE("huggingface: config.json, whole, and read back") {
  ModelConfig scaled = llama();
  scaled.rope = {500000, {8, 1, 4, 8192}};
  scaled.tied = true;
  CHECK(huggingface_config(scaled, DType::bf16, 256) == R"({
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "vocab_size": 7,
  "num_hidden_layers": 2,
  "hidden_size": 12,
  "intermediate_size": 10,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "head_dim": 4,
  "max_position_embeddings": 6,
  "hidden_act": "silu",
  "rms_norm_eps": 1e-05,
  "attention_dropout": 0.0,
  "mlp_bias": false,
  "attention_bias": false,
  "rope_theta": 5e+05,
  "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
  "initializer_range": 0.02,
  "tie_word_embeddings": true,
  "bos_token_id": null,
  "eos_token_id": 256,
  "torch_dtype": "bfloat16",
  "use_cache": true
}
)");
  CHECK(huggingface_generation_config({}) ==
        "{\n  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n  \"pad_token_id\": null\n}\n");
  ModelConfig exact = gpt();
  exact.activation = Activation::gelu;
  exact.dropout = 0.25;
  ModelConfig qwen2 = llama();
  qwen2.qkv_bias = true;
  ModelConfig qwen3 = llama();
  qwen3.qk_norm = true;
  for (const ModelConfig& model : {llama(), scaled, gpt(), exact, qwen2, qwen3}) {
    const ModelConfig back = read_huggingface_config(huggingface_config(model, DType::fp32, {}), "config.json");
    CHECK(model_differences(model, back) == std::vector<std::string>{});
    CHECK(back.dropout == model.dropout);
    CHECK(back.seq_len == model.seq_len);
  }
}

TEST_CASE("huggingface: config.json as others write it") {
  const auto read = [](const std::string& text) { return read_huggingface_config(text, "config.json"); };
  const std::string llama = R"({"model_type":"llama","vocab_size":9,"hidden_size":8,"intermediate_size":12,)"
                            R"("num_hidden_layers":1,"num_attention_heads":2)";
  ModelConfig old = read(llama + "}");  // as the first Llama's
  CHECK((old.kv_heads == 2 && old.head_dim == 4 && old.rope.theta == 10000 && old.norm_eps == 1e-6 && !old.tied));
  const ModelConfig five = read(llama + R"(,"rope_parameters":{"rope_type":"llama3","rope_theta":5e5,"factor":8.0,)"
                                        R"("low_freq_factor":1.0,"high_freq_factor":4.0,)"
                                        R"("original_max_position_embeddings":8192}})");
  CHECK((five.rope.theta == 5e5 && five.rope.scaling.factor == 8 && five.rope.scaling.original_max_position == 8192));
  const ModelConfig plain = read(llama + R"(,"rope_parameters":{"rope_type":"default","rope_theta":7.0}})");
  CHECK((plain.rope.theta == 7 && plain.rope.scaling.factor == 0));
  const std::string gpt2 = R"({"model_type":"gpt2","vocab_size":9,"n_embd":8,"n_layer":1,"n_head":2,"n_positions":4)";
  const ModelConfig first = read(gpt2 + R"(,"n_ctx":4,"n_inner":null,"activation_function":"gelu_new"})");
  CHECK((first.ffn == 32 && first.tied && first.activation == Activation::gelu_tanh && first.norm_eps == 1e-5));

  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {llama + R"(,"attention_bias":true})", "attention_bias"},
           {llama + R"(,"mlp_bias":true})", "mlp_bias"},
           {llama + R"(,"hidden_act":"gelu"})", "hidden_act"},
           {llama + R"(,"use_sliding_window":true})", "use_sliding_window"},
           {llama + R"(,"layer_types":["sliding_attention"]})", "layer_types"},
           {llama + R"(,"rope_scaling":{"type":"yarn","factor":4.0}})", "yarn"},
           {llama + R"(,"partial_rotary_factor":0.5})", "partial_rotary_factor"},
           {llama + R"(,"quantization_config":{}})", "quantization_config"},
           {gpt2 + R"(,"scale_attn_by_inverse_layer_idx":true})", "scale_attn_by_inverse_layer_idx"},
           {gpt2 + R"(,"scale_attn_weights":false})", "scale_attn_weights"},
           {gpt2 + R"(,"add_cross_attention":true})", "add_cross_attention"},
           {gpt2 + R"(,"activation_function":"relu"})", "activation_function \"relu\""},
           {R"({"model_type":"mistral"})", "model_type \"mistral\""},
           {R"({})", "model_type"}}) {
    CHECK(code_of([&, &text = text] { read(text); }, words) == ExitCode::checkpoint_incompatible);
  }
  for (
      const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
          {"[]", "not a JSON object"},
          {R"({"model_type":"llama"})", "'vocab_size' is missing"},
          {llama + R"(,"num_key_value_heads":"2"})", "'num_key_value_heads' is not a whole number"},
          {llama + R"(,"num_key_value_heads":1.5})", "'num_key_value_heads' is not a whole number"},
          {llama + R"(,"num_key_value_heads":3})", "kv_heads 3"},
          {llama + R"(,"tie_word_embeddings":1})", "is not true or false"},
          {R"({"model_type":"gpt2","vocab_size":9,"n_embd":9223372036854775807,"n_layer":1,"n_head":1,"n_positions":4})",
           "n_embd"},
          {R"({"model_type":"gpt2","vocab_size":9,"n_embd":8,"n_layer":1000000000,"n_head":2,"n_positions":4})",
           "model.layers"}}) {
    CHECK(code_of([&, &text = text] { read(text); }, words) == ExitCode::bad_input);
  }
}
