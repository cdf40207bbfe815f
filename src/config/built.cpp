// SPDX-License-Identifier: Apache-2.0
/// Features that decks can ask for but that are not built yet: delete a row when its feature arrives.
#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/config/check.hpp"
#include "llmtrain/config/key.hpp"
#include "rules.hpp"

namespace llmtrain {
namespace {

struct Refusal {
  std::string_view key;
  std::function<bool(const Deck&, int ranks)> asks;  ///< true if the deck asks for what is missing; ranks 0: unknown
  std::string_view remedy;
};

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> rows{};  // everything is built
  return rows;
}

}  // namespace

void check_built(const Deck& deck, int ranks, const DeckOrigin& origin, Findings& findings) {
  Rules rules(origin, findings);
  for (const Refusal& row : refusals()) {
    const Key& key = *find_key(row.key);
    rules.rule(!row.asks(deck, ranks), {row.key}, "{} {}{} is not built yet: {}", row.key, format_value(key, deck),
               origin.places.contains(row.key) ? "" : " (the default)", row.remedy);
  }
}

}  // namespace llmtrain
