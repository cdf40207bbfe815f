// SPDX-License-Identifier: Apache-2.0
/// Fills in what a deck leaves to the machine or the tokenizer.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "llmtrain/backend/device.hpp"
#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// The deck with model.vocab (0 = tokenizer_vocab), vocab_multiple (0 = 128 on GPU, 16 on CPU), head_dim, data.seed,
/// data.samples, checkpoint.dir and run.device settled.
Deck resolve(const Deck& deck, std::int64_t tokenizer_vocab, DeviceKind device);

/// OpenMP threads of this rank: `wanted`, or for 0 OMP_NUM_THREADS if set, else its share of the cores that it may run on,
/// whether the ranks of its node are bound or not. Collective over `node`; null for a program alone.
int thread_count(int wanted, const MpiComm& node);

/// Cores that are `allowed` to rank `own` (core_mask() of each rank of the node), each divided among the
/// ranks that may run there; at least 1.
int share_of_cores(std::span<const std::string> allowed, int own);

}  // namespace llmtrain
