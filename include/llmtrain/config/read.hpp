// SPDX-License-Identifier: Apache-2.0
/// From deck text and command line to a Deck.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "llmtrain/config/check.hpp"
#include "llmtrain/config/deck.hpp"
#include "llmtrain/config/findings.hpp"

namespace llmtrain {

/// Text of a deck file. Throws Error(missing_input) if it does not exist or cannot be opened.
std::string load_deck_text(const std::string& path);

/// Reads a deck: what its family and its preset set first, then its keys, then `overrides` ("block.key=value", the value
/// in YAML flow form); applies `checks` and resolves model.head_dim.
/// `name` stands in messages. Throws Error(configuration) with all mistakes, one a line, each with its place
/// ("deck.yaml:12:5: ...", "command line: run.steps=abc: ..."); Error(usage) for an override without "=".
Deck parse_deck(std::string_view text, const std::string& name, std::span<const std::string> overrides = {},
                const DeckChecks& checks = {});

/// load_deck_text and parse_deck in one; overrides without "=" are reported before the file is opened.
Deck read_deck(const std::string& path, std::span<const std::string> overrides = {}, const DeckChecks& checks = {});

/// The value of --tokenizer, written as data.tokenizer is: bytes, a path, or a map in YAML flow form. Throws
/// Error(configuration) with all mistakes.
TokenizerConfig parse_tokenizer(std::string_view text);

/// Throws Error(usage) unless every argument has the form block.key=value.
void require_overrides(std::span<const std::string> arguments);

}  // namespace llmtrain
