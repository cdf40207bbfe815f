// SPDX-License-Identifier: Apache-2.0
/// A Deck as YAML text: canonical, with comments, or reduced to what names a run.
#pragma once

#include <string>
#include <string_view>

#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// Which keys a dump holds.
enum class DumpFor {
  run,         ///< all: the deck.yaml of a run's folder
  checkpoint,  ///< without run.dir and checkpoint.dir: the deck that a checkpoint stores
  run_id,      ///< without paths, run.name, output and thread keys: input of the digest that identifies a run
};

/// Canonical YAML: all keys in the order of the deck, shortest round-trip numbers; equal decks give equal text, and
/// parse_deck(to_yaml(deck)) gives the same deck.
std::string to_yaml(const Deck& deck, DumpFor use = DumpFor::run);

/// The same with meaning, range and unit of every key as comments.
std::string to_commented_yaml(const Deck& deck);

/// `text` as a YAML scalar that reads back as this text: bare where that is safe, else in double quotes.
std::string quote_yaml(std::string_view text);

}  // namespace llmtrain
