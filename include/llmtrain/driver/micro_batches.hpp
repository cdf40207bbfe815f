// SPDX-License-Identifier: Apache-2.0
/// How a step's sequences are dealt out.
#pragma once

#include "llmtrain/config/deck.hpp"
#include "llmtrain/topology/topology.hpp"

namespace llmtrain {

/// Micro-batches of one data-parallel rank in a step; the deck's rules make it whole.
inline std::int64_t micro_batches_of(const Deck& deck, const Topology& topology) {
  return deck.schedule.global_batch / (deck.schedule.micro_batch * topology.size(data_axes));
}

}  // namespace llmtrain
