// SPDX-License-Identifier: Apache-2.0
/// The GPT family with the options of GPT-2.
#pragma once

#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// The model with the same sizes, of the GPT family.
inline ModelConfig as_gpt(ModelConfig model) {
  model.family = Family::gpt;
  model.tied = true;
  model.kv_heads = model.heads;
  model.qkv_bias = true;
  model.qk_norm = false;
  model.activation = Activation::gelu_tanh;
  model.positions = Positions::learned;
  return model;
}

}  // namespace llmtrain
