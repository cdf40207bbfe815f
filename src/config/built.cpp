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
      {"parallel.tensor", [](const D& d, int) { return d.parallel.tensor > 1; }, "use parallel.tensor 1"},
      {"parallel.shard",
       [](const D& d, int ranks) {
         const std::int64_t data = ranks / (static_cast<std::int64_t>(d.parallel.tensor) * d.parallel.pipeline);
         return ranks > 0 && d.parallel.shard != 0 && d.parallel.shard != data;
       },
       "use parallel.shard 0"},
      {"parallel.zero", [](const D& d, int) { return d.parallel.zero > 1; }, "use parallel.zero 0 or 1"},
      {"precision.gradients", [](const D& d, int) { return d.precision.gradients != Storage16::fp32; },
       "use precision.gradients fp32"},
      {"precision.reduce", [](const D& d, int) { return d.precision.reduce != Storage16::fp32; },
       "use precision.reduce fp32"},
      {"precision.moments", [](const D& d, int) { return d.precision.moments != Storage16::fp32; },
       "use precision.moments fp32"},
      {"data.train", [](const D& d, int) { return d.data.train.size() > 1; }, "a blend of several sets; name one"},
      {"data.order", [](const D& d, int) { return d.data.order != SampleOrder::megatron; }, "use data.order megatron"},
      {"data.document_mask", [](const D& d, int) { return d.data.document_mask; }, "set it false"},
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
