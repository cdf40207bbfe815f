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
  using D = Deck;
  static const std::vector<Refusal> rows{
      {"precision.gradients", [](const D& d, int) { return d.precision.gradients != Storage16::fp32; },
       "use precision.gradients fp32"},
      {"precision.reduce", [](const D& d, int) { return d.precision.reduce != Storage16::fp32; },
       "use precision.reduce fp32"},
      {"precision.moments", [](const D& d, int) { return d.precision.moments != Storage16::fp32; },
       "use precision.moments fp32"},
      {"data.tokenizer", [](const D& d, int) { return d.data.tokenizer.file != "bytes"; }, "use data.tokenizer bytes"},
      {"checkpoint.async", [](const D& d, int) { return d.checkpoint.async; }, "set it false"},
  };
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
