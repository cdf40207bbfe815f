// SPDX-License-Identifier: Apache-2.0
/// The presets, one row each; the numbers are those of the config.json files that the models were published with. A
/// preset leaves seq_len alone unless positions are learned, for then it is part of the model. `llama` rows leave out
/// what is the default: silu, rope, no biases, init_std 0.02.
#include "llmtrain/config/presets.hpp"

#include <array>

namespace llmtrain {
namespace {

constexpr std::array rows{
    Preset{"gpt2-124m",
           "{family: gpt, layers: 12, hidden: 768, heads: 12, kv_heads: 12, ffn: 3072, seq_len: 1024, vocab: 50257, "
           "norm_eps: 1e-5, tied: true, qkv_bias: true, activation: gelu_tanh, positions: learned, init_std: 0.02}"},
    Preset{"gpt2-1.5b",
           "{family: gpt, layers: 48, hidden: 1600, heads: 25, kv_heads: 25, ffn: 6400, seq_len: 1024, vocab: 50257, "
           "norm_eps: 1e-5, tied: true, qkv_bias: true, activation: gelu_tanh, positions: learned, init_std: 0.02}"},
    Preset{"llama2-13b",
           "{family: llama, layers: 40, hidden: 5120, heads: 40, kv_heads: 40, head_dim: 128, ffn: 13824, vocab: "
           "32000, norm_eps: 1e-5, tied: false, rope: {theta: 1e4}}"},
    Preset{"codellama-34b",
           "{family: llama, layers: 48, hidden: 8192, heads: 64, kv_heads: 8, head_dim: 128, ffn: 22016, vocab: "
           "32000, norm_eps: 1e-5, tied: false, rope: {theta: 1e6}}"},
    Preset{"llama3-8b",
           "{family: llama, layers: 32, hidden: 4096, heads: 32, kv_heads: 8, head_dim: 128, ffn: 14336, vocab: "
           "128256, norm_eps: 1e-5, tied: false, rope: {theta: 5e5}}"},
    Preset{"llama3-70b",
           "{family: llama, layers: 80, hidden: 8192, heads: 64, kv_heads: 8, head_dim: 128, ffn: 28672, vocab: "
           "128256, norm_eps: 1e-5, tied: false, rope: {theta: 5e5}}"},
    Preset{"llama3-405b",
           "{family: llama, layers: 126, hidden: 16384, heads: 128, kv_heads: 8, head_dim: 128, ffn: 53248, vocab: "
           "128256, norm_eps: 1e-5, tied: false, rope: {theta: 5e5, scaling: {factor: 8, low_freq_factor: 1, "
           "high_freq_factor: 4, original_max_position: 8192}}}"},
    Preset{"llama3.2-1b",
           "{family: llama, layers: 16, hidden: 2048, heads: 32, kv_heads: 8, head_dim: 64, ffn: 8192, vocab: 128256, "
           "norm_eps: 1e-5, tied: true, rope: {theta: 5e5, scaling: {factor: 32, low_freq_factor: 1, "
           "high_freq_factor: 4, original_max_position: 8192}}}"},
    Preset{"llama3.2-3b",
           "{family: llama, layers: 28, hidden: 3072, heads: 24, kv_heads: 8, head_dim: 128, ffn: 8192, vocab: "
           "128256, norm_eps: 1e-5, tied: true, rope: {theta: 5e5, scaling: {factor: 32, low_freq_factor: 1, "
           "high_freq_factor: 4, original_max_position: 8192}}}"},
    Preset{"qwen2.5-1.5b",
           "{family: llama, layers: 28, hidden: 1536, heads: 12, kv_heads: 2, head_dim: 128, ffn: 8960, vocab: "
           "151936, norm_eps: 1e-6, tied: true, qkv_bias: true, rope: {theta: 1e6}}"},
    Preset{"qwen2.5-3b",
           "{family: llama, layers: 36, hidden: 2048, heads: 16, kv_heads: 2, head_dim: 128, ffn: 11008, vocab: "
           "151936, norm_eps: 1e-6, tied: true, qkv_bias: true, rope: {theta: 1e6}}"},
    Preset{"qwen2.5-7b",
           "{family: llama, layers: 28, hidden: 3584, heads: 28, kv_heads: 4, head_dim: 128, ffn: 18944, vocab: "
           "152064, norm_eps: 1e-6, tied: false, qkv_bias: true, rope: {theta: 1e6}}"},
    Preset{"qwen3-8b",
           "{family: llama, layers: 36, hidden: 4096, heads: 32, kv_heads: 8, head_dim: 128, ffn: 12288, vocab: "
           "151936, norm_eps: 1e-6, tied: false, qk_norm: true, rope: {theta: 1e6}}"},
};

/// What a family implies unless it is written otherwise; llama is what the defaults are.
constexpr Preset gpt{"gpt", "{qkv_bias: true, activation: gelu_tanh, positions: learned}"};

}  // namespace

std::span<const Preset> presets() { return rows; }

const Preset* find_preset(std::string_view name) {
  for (const Preset& preset : rows) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

const Preset* find_family(std::string_view name) { return name == gpt.name ? &gpt : nullptr; }

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names{""};
  for (const Preset& preset : rows) names.push_back(preset.name);
  return names;
}

}  // namespace llmtrain
