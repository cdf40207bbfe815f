// SPDX-License-Identifier: Apache-2.0
/// Decks from the inputs of other systems. Nothing is executed and no file is opened but the one that is named.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/importers/draft.hpp"

namespace llmtrain {

/// How a row of an importer's table is translated.
enum class RowKind {
  key,             ///< its value is that of one key of the deck
  rule,            ///< code looks at it, together with others
  not_applicable,  ///< `text` says why it does not matter here
  unsupported,     ///< `text` says what is lacking, unless its value is `usual`
};

/// How many words follow an argument of a command line.
enum class Takes { nothing, one, many };

/// A key or argument of the other system; its tables are the only list of what an importer knows.
struct ImportRow {
  std::string_view name;  ///< "zero_optimization.stage", "num-layers"; "x.*": all below x
  RowKind kind;
  std::string_view text;  ///< the deck's key; what rules make of it; the reason
  std::string_view
      usual{};  ///< key: the other system's default, "" = none; unsupported: the value that asks for nothing
  Takes takes = Takes::one;
};

/// The tables, in several pieces.
std::vector<std::span<const ImportRow>> deepspeed_rows();
std::vector<std::span<const ImportRow>> megatron_rows();

/// A deck from the text of DeepSpeed's JSON file; `name` stands in messages. Throws Error(bad_input) for what is no such
/// file, Error(usage) when a number of ranks is needed and not given.
DeckDraft import_deepspeed(std::string_view json, const std::string& name, const ImportOptions& options);

/// A deck from the words of a Megatron-LM command line, its launcher and script name included or not.
DeckDraft import_megatron(const std::vector<std::string>& words, const std::string& name, const ImportOptions& options);

/// The same from a shell or sbatch script that holds the command.
DeckDraft import_megatron_script(std::string_view script, const std::string& name, const ImportOptions& options);

}  // namespace llmtrain
