// SPDX-License-Identifier: Apache-2.0
/// The presets, one row each; the numbers are those of the models' published config.json files. A preset leaves
/// seq_len alone unless positions are learned, for then it is part of the model.
#include "llmtrain/config/presets.hpp"

#include <array>

namespace llmtrain {
namespace {

constexpr std::array rows{
    Preset{"gpt2-124m",
           "{family: gpt, layers: 12, hidden: 768, heads: 12, kv_heads: 12, ffn: 3072, seq_len: 1024, vocab: 50257, "
           "norm_eps: 1e-5, tied: true, qkv_bias: true, activation: gelu_tanh, positions: learned, init_std: 0.02}"},
    Preset{"llama3.2-1b",
           "{family: llama, layers: 16, hidden: 2048, heads: 32, kv_heads: 8, head_dim: 64, ffn: 8192, vocab: 128256, "
           "norm_eps: 1e-5, tied: true, rope: {theta: 5e5, scaling: {factor: 32, low_freq_factor: 1, "
           "high_freq_factor: 4, original_max_position: 8192}}}"},
    Preset{"qwen2.5-1.5b",
           "{family: llama, layers: 28, hidden: 1536, heads: 12, kv_heads: 2, head_dim: 128, ffn: 8960, vocab: 151936, "
           "norm_eps: 1e-6, tied: true, qkv_bias: true, rope: {theta: 1e6}}"},
};

}  // namespace

std::span<const Preset> presets() { return rows; }

const Preset* find_preset(std::string_view name) {
  for (const Preset& preset : rows) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names{""};
  for (const Preset& preset : rows) names.push_back(preset.name);
  return names;
}

}  // namespace llmtrain
