// SPDX-License-Identifier: Apache-2.0
/// Fills in what a deck leaves to the machine or the tokenizer.
#pragma once

#include <cstdint>

#include "llmtrain/backend/device.hpp"
#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// The deck with model.vocab (0 = tokenizer_vocab), vocab_multiple (0 = 128 on GPU, 16 on CPU), head_dim, data.seed,
/// data.samples, checkpoint.dir and run.device settled.
Deck resolve(const Deck& deck, std::int64_t tokenizer_vocab, DeviceKind device);

/// OpenMP threads of this rank: `wanted`, or for 0 OMP_NUM_THREADS if set, else the allowed cores shared by the
/// `local_ranks` of this node.
int thread_count(int wanted, int local_ranks);

}  // namespace llmtrain
