// SPDX-License-Identifier: Apache-2.0
/// Shared by the tests of the exchange with Hugging Face: small models, and what a refusal says.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "llmtrain/base/error.hpp"
#include "llmtrain/config/deck.hpp"

namespace llmtrain::huggingface_test {

inline ModelConfig llama() {
  ModelConfig m;
  m.layers = 2;
  m.hidden = 12;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 4;
  m.ffn = 10;
  m.seq_len = 6;
  m.vocab = 7;
  m.vocab_multiple = 16;
  return m;
}

inline ModelConfig gpt() {
  ModelConfig m = llama();
  m.family = Family::gpt;
  m.positions = Positions::learned;
  m.activation = Activation::gelu_tanh;
  m.qkv_bias = m.tied = true;
  m.kv_heads = 4;
  m.head_dim = 3;
  return m;
}

/// The code of the refusal, whose one line has these words.
inline ExitCode code_of(const std::function<void()>& action, const std::string& words) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    CAPTURE(message);
    CHECK(message.find(words) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
    return error.code();
  }
  FAIL_CHECK("nothing was refused: " << words);
  return ExitCode::done;
}

}  // namespace llmtrain::huggingface_test
