// SPDX-License-Identifier: Apache-2.0
/// Rules between keys: what a deck may not combine, with the numbers and the nearest valid choices.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/config/deck.hpp"
#include "llmtrain/config/findings.hpp"

namespace llmtrain {

/// Which rules parse_deck applies beyond those of single keys and check_values.
struct DeckChecks {
  int ranks = 0;      ///< check_ranks for so many ranks; 0: unknown
  bool data = false;  ///< data.train must name a dataset (check_data)
};

/// Rules that need no number of ranks.
void check_values(const Deck& deck, const DeckOrigin& origin, Findings& findings);

/// Rules between the deck and the number of ranks: tensor, pipeline, shard, batches.
void check_ranks(const Deck& deck, int ranks, const DeckOrigin& origin, Findings& findings);

/// What training needs of `data` beyond its ranges.
void check_data(const Deck& deck, const DeckOrigin& origin, Findings& findings);

/// check_values, and the rules that `checks` asks for.
void check_deck(const Deck& deck, const DeckChecks& checks, const DeckOrigin& origin, Findings& findings);

/// The same for a deck made in code: throws Error(configuration) with all lines.
void check_deck(const Deck& deck, const DeckChecks& checks);

/// The three shares of `data.split`, as written; nullopt, with `problem` a clause that says why, unless they are three
/// non-negative finite numbers of which one is positive.
std::optional<std::array<double, 3>> parse_split(std::string_view split, std::string& problem);

/// Layers of each of `pieces` contiguous pieces of the model, as even as can be, earlier pieces one more. The embedding and
/// the head count as a layer each if the deck says so; at least one layer or counted end a piece.
std::vector<std::int64_t> even_layers(std::int64_t layers, const ParallelConfig& parallel, std::int64_t pieces);

}  // namespace llmtrain
