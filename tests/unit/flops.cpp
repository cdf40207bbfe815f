// SPDX-License-Identifier: Apache-2.0
/// Parameter counts and FLOPs against published models, and against a small model counted by hand.
#include "llmtrain/metrics/flops.hpp"

#include <doctest/doctest.h>

#include "llmtrain/base/error.hpp"
#include "llmtrain/model/param_table.hpp"

using namespace llmtrain;

namespace {

ModelConfig llama(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads, std::int64_t ffn,
                  std::int64_t vocab, std::int64_t seq_len) {
  ModelConfig model;
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.ffn = ffn;
  model.vocab = vocab;
  model.seq_len = seq_len;
  return model;
}

doctest::Approx giga(double value) {
  return doctest::Approx(value * 1e9).epsilon(0.05 / value);
}  // one digit after the point

}  // namespace

TEST_CASE("published parameter counts") {
  CHECK(count_parameters(llama(32, 4096, 32, 8, 14336, 128256, 8192)).total == 8'030'261'248);   // Llama-3-8B
  CHECK(count_parameters(llama(40, 5120, 40, 40, 13824, 32000, 4096)).total == 13'015'864'320);  // Llama-2-13B
  CHECK(count_parameters(llama(80, 8192, 64, 8, 28672, 128256, 8192)).total == 70'553'706'496);  // Llama-3-70B
  ModelConfig small = llama(16, 2048, 32, 8, 8192, 128256, 8192);                                // Llama-3.2-1B
  small.tied = true;
  CHECK(count_parameters(small).total == 1'235'814'400);
  ModelConfig qwen2 = llama(24, 896, 14, 2, 4864, 151936, 1024);  // Qwen2-0.5B
  qwen2.tied = true;
  qwen2.qkv_bias = true;
  CHECK(count_parameters(qwen2).total == 494'032'768);
  ModelConfig qwen3 = llama(28, 1024, 16, 8, 3072, 151936, 1024);  // Qwen3-0.6B
  qwen3.tied = true;
  qwen3.head_dim = 128;  // not hidden / heads
  qwen3.qk_norm = true;
  CHECK(count_parameters(qwen3).total == 596'049'920);
}

TEST_CASE("FLOPs a token by convention A match the public tables") {
  CHECK(flops_per_token(llama(32, 4096, 32, 8, 14336, 128256, 8192)).causal == giga(51.5));     // Llama-3-8B
  CHECK(flops_per_token(llama(40, 5120, 40, 40, 13824, 32000, 4096)).causal == giga(82.1));     // Llama-2-13B
  CHECK(flops_per_token(llama(80, 8192, 64, 8, 28672, 32000, 4096)).causal == giga(428.4));     // Llama-2-70B
  CHECK(flops_per_token(llama(80, 8192, 64, 8, 28672, 128256, 8192)).causal == giga(449.2));    // Llama-3-70B
  CHECK(flops_per_token(llama(126, 16384, 128, 8, 53248, 128256, 8192)).causal == giga(2524));  // Llama-3.1-405B
  CHECK(flops_per_token(llama(32, 4096, 32, 8, 14336, 128256, 8192)).full == giga(57.9));
}

TEST_CASE("a small model by hand, tied and untied") {
  ModelConfig model = llama(2, 8, 4, 2, 16, 10, 32);  // head_dim 2: q [8, 8], k and v [4, 8], o [8, 8], mlp 3 x [16, 8]
  const ParameterCounts untied = count_parameters(model);
  CHECK(untied.block_matrices == 64 + 32 + 32 + 64 + 384);
  CHECK(untied.block_vectors == 16);
  CHECK(untied.matmul == 2 * 576 + 80);
  CHECK(untied.total == 80 + 2 * 592 + 8 + 80);
  model.tied = true;
  const ParameterCounts tied = count_parameters(model);
  CHECK(tied.total == untied.total - 80);
  CHECK(tied.matmul == untied.matmul);  // the head's product is done all the same
  const FlopsPerToken flops = flops_per_token(model);
  CHECK(flops.six_n == 6.0 * 1232);
  CHECK(flops.causal == 6.0 * 1232 + 6.0 * 2 * 8 * 32);
  CHECK(flops.full == 6.0 * 1232 + 12.0 * 2 * 8 * 32);
}

TEST_CASE("GPT-2 by its published count and by hand") {
  ModelConfig gpt2 = llama(12, 768, 12, 12, 3072, 50257, 1024);
  gpt2.family = Family::gpt;
  gpt2.tied = gpt2.qkv_bias = true;
  const ParameterCounts counts = count_parameters(gpt2);
  CHECK(counts.total == 124'439'808);
  CHECK(counts.positions == 1024 * 768);
  CHECK(counts.matmul == 12 * 12 * 768 * 768 + 50257 * 768);
  CHECK(flops_per_token(gpt2).full == 6.0 * static_cast<double>(counts.matmul) + 12.0 * 12 * 768 * 1024);
}

TEST_CASE("formulas count what the parameter table holds") {
  ModelConfig model = llama(3, 8, 4, 2, 16, 10, 32);
  model.head_dim = 6;
  model.vocab_multiple = 16;
  const auto agree = [&] { CHECK(count_parameters(model).total == make_param_table(model, 1).parameters()); };
  for (const bool option : {false, true}) {
    model.tied = model.qkv_bias = model.qk_norm = option;
    agree();
  }
  model.family = Family::gpt;
  model.positions = Positions::learned;
  model.activation = Activation::gelu;
  model.qk_norm = false;
  agree();
}

TEST_CASE("what cannot be counted is refused") {
  ModelConfig model = llama(2, 8, 4, 2, 16, 10, 32);
  model.vocab = 0;
  CHECK_THROWS_AS(count_parameters(model), Error);
}
