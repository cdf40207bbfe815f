// SPDX-License-Identifier: Apache-2.0
/// Layers dealt to pipeline stages by the time that they take, the model's ends counted.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// What the model's ends take, in layers.
struct EndCosts {
  double embedding = 0;
  double head = 0;  ///< with the loss
};

/// From the seconds of each stage's actions (StepTimes), two or more; where there is no inner stage the embedding counts as
/// nothing.
EndCosts end_costs(const Deck& deck, const std::vector<double>& stage_seconds);

/// Layers of each of stages x chunks pieces, in the model's order as in parallel.stage_layers: at least one a piece, and the
/// stage that takes longest as short as can be. Of equal choices the later stage gets more, which holds fewer micro-batches.
std::vector<std::int64_t> balanced_layers(std::int64_t layers, int stages, int chunks, const EndCosts& ends);

/// A pipeline's deck with layers dealt so; nothing if it has them so, or stages without any.
std::optional<Deck> balanced_deck(const Deck& deck, const EndCosts& ends);

}  // namespace llmtrain
