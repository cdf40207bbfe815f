// SPDX-License-Identifier: Apache-2.0
/// The architectures of Hugging Face that hold llmtrain's families.
#pragma once

#include <array>
#include <string_view>

#include "llmtrain/config/deck.hpp"

namespace llmtrain {

enum class Architecture { llama, qwen2, qwen3, gpt2 };

struct ArchitectureFacts {
  Architecture architecture;
  std::string_view model_type;  ///< in config.json
  std::string_view name;        ///< of the class with a language-model head
  std::string_view prefix;      ///< of all tensors but the head's; files of the class without a head leave it out
};

inline constexpr std::array architectures{
    ArchitectureFacts{Architecture::llama, "llama", "LlamaForCausalLM", "model."},
    ArchitectureFacts{Architecture::qwen2, "qwen2", "Qwen2ForCausalLM", "model."},
    ArchitectureFacts{Architecture::qwen3, "qwen3", "Qwen3ForCausalLM", "model."},
    ArchitectureFacts{Architecture::gpt2, "gpt2", "GPT2LMHeadModel", "transformer."},
};

inline const ArchitectureFacts& facts_of(Architecture architecture) {
  return architectures[static_cast<std::size_t>(architecture)];
}

/// The one that holds a resolved model. Throws Error(checkpoint_incompatible) naming what none of them has.
Architecture architecture_of(const ModelConfig& model);

}  // namespace llmtrain
