// SPDX-License-Identifier: Apache-2.0
/// What the deck tests share: the message that a deck text gives.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "llmtrain/base/error.hpp"
#include "llmtrain/config/read.hpp"

namespace llmtrain {

/// The error message of this deck text, or "" if it is read; the code of any error must be `code`.
inline std::string deck_error(const std::string& text, const std::vector<std::string>& overrides = {},
                              DeckChecks checks = {}, ExitCode code = ExitCode::configuration) {
  try {
    parse_deck(text, "deck.yaml", overrides, checks);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return {};
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace llmtrain
