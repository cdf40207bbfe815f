// SPDX-License-Identifier: Apache-2.0
/// A small Llama and a few steps of 16 sequences, for runs in many layouts.
#pragma once

#include "llmtrain/config/deck.hpp"

namespace llmtrain {

inline Deck small_deck(std::int64_t steps, std::int64_t layers, bool tied) {
  Deck deck;
  deck.run.steps = steps;
  deck.data.seed = 3;
  deck.data.samples = 48;
  deck.schedule.global_batch = 16;
  deck.optimizer.lr = 1e-3;
  deck.optimizer.warmup_steps = 2;
  ModelConfig& m = deck.model;
  m.layers = layers;
  m.hidden = 32;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 8;
  m.ffn = 40;
  m.seq_len = 8;
  m.vocab = 61;
  m.vocab_multiple = 16;
  m.tied = tied;
  m.init_std = 0.1;
  return deck;
}

/// The same with linear layers in fp8, of extents that these take on two tensor ranks too.
inline Deck small_fp8_deck(std::int64_t steps, std::int64_t layers, bool tied) {
  Deck deck = small_deck(steps, layers, tied);
  deck.precision.linear = LinearProducts::fp8;
  ModelConfig& m = deck.model;
  m.hidden = 64;
  m.head_dim = 16;
  m.ffn = 96;
  m.seq_len = 16;
  return deck;
}

}  // namespace llmtrain
