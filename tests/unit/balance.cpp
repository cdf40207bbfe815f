// SPDX-License-Identifier: Apache-2.0
/// Layers dealt to pipeline stages by time.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "llmtrain/plan/balance.hpp"

using namespace llmtrain;

namespace {

/// What a stage does in all, in layers.
std::vector<double> loads_of(const std::vector<std::int64_t>& split, int stages, const EndCosts& ends) {
  std::vector<double> loads(static_cast<std::size_t>(stages));
  for (std::size_t i = 0; i < split.size(); ++i) loads[i % loads.size()] += static_cast<double>(split[i]);
  loads.front() += ends.embedding;
  loads.back() += ends.head;
  return loads;
}

}  // namespace

TEST_CASE("the last stage has less layers by what the head takes") {
  CHECK(balanced_layers(32, 2, 1, {0, 2.1}) == std::vector<std::int64_t>{17, 15});
  CHECK(balanced_layers(32, 2, 2, {0, 2.4}) == std::vector<std::int64_t>{8, 9, 9, 6});
  CHECK(balanced_layers(80, 4, 1, {0, 1.4}) == std::vector<std::int64_t>{20, 20, 21, 19});
  CHECK(balanced_layers(126, 16, 1, {1, 1}) ==
        std::vector<std::int64_t>{7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7});
  CHECK(balanced_layers(8, 4, 2, {0, 9}) == std::vector<std::int64_t>(8, 1));  // none to spare
}

TEST_CASE("what the ends take comes from the seconds of stages") {
  Deck deck;
  deck.model.layers = 12;
  deck.parallel.pipeline = 3;
  const EndCosts ends = end_costs(deck, {9, 8, 12});  // four layers each
  CHECK(ends.embedding == doctest::Approx(0.5));
  CHECK(ends.head == doctest::Approx(2));
  CHECK(balanced_deck(deck, ends)->parallel.stage_layers == std::vector<std::int64_t>{4, 5, 3});
  deck.parallel.stage_layers = {4, 5, 3};
  CHECK(!balanced_deck(deck, ends));
  deck.model.layers = 1;  // the first and the last stage have an end alone
  deck.parallel.stage_layers.clear();
  deck.parallel.count_embedding = deck.parallel.count_head = true;
  CHECK(!balanced_deck(deck, ends));
}

TEST_CASE("no layer could go to another stage and make the slowest one faster") {
  for (int stages = 2; stages <= 6; ++stages) {
    for (int chunks = 1; chunks <= 3; ++chunks) {
      for (int layers = stages * chunks; layers <= 40; layers += 3) {
        for (const double head : {0.0, 0.4, 1.5, 7.0}) {
          const EndCosts ends{0.3, head};
          const std::vector<std::int64_t> split = balanced_layers(layers, stages, chunks, ends);
          REQUIRE(std::ssize(split) == stages * chunks);
          CHECK(*std::min_element(split.begin(), split.end()) >= 1);
          CHECK(std::accumulate(split.begin(), split.end(), std::int64_t{0}) == layers);
          const std::vector<double> loads = loads_of(split, stages, ends);
          const auto slowest = static_cast<std::size_t>(std::max_element(loads.begin(), loads.end()) - loads.begin());
          std::int64_t to_spare = -chunks;
          for (std::size_t i = slowest; i < split.size(); i += loads.size()) to_spare += split[i];
          const double least = *std::min_element(loads.begin(), loads.end());
          CHECK((to_spare == 0 || least + 1 >= loads[slowest] - 1e-9));
        }
      }
    }
  }
}
