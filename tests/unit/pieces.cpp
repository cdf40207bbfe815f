// SPDX-License-Identifier: Apache-2.0
/// How a pipeline cuts the model and its parameter table, and the order in which its channels are made.
#include "llmtrain/model/pieces.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "llmtrain/base/error.hpp"
#include "llmtrain/model/param_table.hpp"
#include "llmtrain/parallel/groups.hpp"

using namespace llmtrain;

namespace {

using Layers = std::vector<std::int64_t>;

Layers layers_of(std::int64_t layers, const ParallelConfig& parallel, int pieces) {
  Layers out;
  std::int64_t first = 0;
  const std::vector<ModelPiece> cut = cut_model(layers, parallel, pieces);
  for (std::size_t i = 0; i < cut.size(); ++i) {
    CHECK(cut[i].first_layer == first);
    CHECK(cut[i].embedding == (i == 0));
    CHECK(cut[i].head == (i + 1 == cut.size()));
    first += cut[i].layers;
    out.push_back(cut[i].layers);
  }
  return out;
}

ModelConfig tied_model() {
  ModelConfig model;
  model.layers = 5;
  model.head_dim = 32;
  model.vocab = 61;
  model.vocab_multiple = 16;
  model.tied = true;
  return model;
}

}  // namespace

TEST_CASE("layers are cut evenly, as listed, or with the ends counted") {
  ParallelConfig parallel;
  CHECK(layers_of(8, parallel, 1) == Layers{8});
  CHECK(layers_of(8, parallel, 4) == Layers{2, 2, 2, 2});
  CHECK(layers_of(7, parallel, 3) == Layers{3, 2, 2});
  parallel.count_embedding = true;
  CHECK(layers_of(7, parallel, 4) == Layers{1, 2, 2, 2});
  parallel.count_head = true;
  CHECK(layers_of(6, parallel, 4) == Layers{1, 2, 2, 1});
  CHECK(layers_of(1, parallel, 3) == Layers{0, 1, 0});
  parallel.stage_layers = {3, 1, 2};
  CHECK(layers_of(6, parallel, 3) == Layers{3, 1, 2});
  CHECK_THROWS_AS(cut_model(7, parallel, 3), Error);
}

TEST_CASE("stages hold every row of the table once, and a tied weight at both ends") {
  const ModelConfig model = tied_model();
  const ParamTable whole = make_param_table(model, 1);
  for (const int stages : {1, 2, 3}) {
    for (const int chunks : {1, 2}) {
      if (stages * chunks > model.layers || (stages == 1 && chunks > 1)) continue;
      const std::vector<ModelPiece> cut = cut_model(model.layers, {}, stages * chunks);
      std::map<std::string, std::vector<TiedCopy>> held;
      std::multiset<std::string> leases;
      for (int stage = 0; stage < stages; ++stage) {
        std::vector<PieceLeases> mine;
        int first = 0;
        for (int chunk = 0; chunk < chunks; ++chunk) {
          mine.push_back({cut[static_cast<std::size_t>(chunk * stages + stage)], first});
          first += mine.back().piece.leases();
        }
        const ParamTable table = table_of(whole, mine, model.layers);
        for (const StorageSpec& storage : table.storages) held[storage.name].push_back(storage.tied);
        for (const LeaseSpec& lease : table.leases) {
          leases.insert(lease.name);
          for (const int storage : lease.storages) CHECK(storage < std::ssize(table.storages));
        }
        const auto name = [&](int lease) { return table.leases[static_cast<std::size_t>(lease)].name; };
        for (const PieceLeases& at : mine) {
          if (at.piece.embedding) CHECK(name(at.embedding()) == "embedding");
          for (std::int64_t i = 0; i < at.piece.layers; ++i) {
            CHECK(name(at.block(i)) == "block " + std::to_string(at.piece.first_layer + i));
          }
          if (at.piece.head) CHECK(name(at.head()) == "head");
        }
        CHECK(every_lease(mine).size() == table.leases.size());
      }
      CHECK(leases.size() == whole.leases.size());
      CHECK(held.size() == whole.storages.size());
      for (const auto& [name, copies] : held) {
        const bool both = name == "embedding" && stages > 1;
        CHECK(copies == (both ? std::vector{TiedCopy::first, TiedCopy::last} : std::vector{TiedCopy::none}));
      }
    }
  }
}

TEST_CASE("in each round of making channels the stages of a boundary meet each other and nobody else") {
  for (int stages = 1; stages <= 9; ++stages) {
    for (const bool ring : {false, true}) {
      CAPTURE(stages);
      CAPTURE(ring);
      std::vector<std::vector<int>> rounds;
      for (int stage = 0; stage < stages; ++stage) rounds.push_back(boundary_rounds(stage, stages, ring));
      std::set<int> made;
      for (std::size_t round = 0; round < rounds[0].size(); ++round) {
        std::multiset<int> ends;
        for (int stage = 0; stage < stages; ++stage) {
          REQUIRE(rounds[static_cast<std::size_t>(stage)].size() == rounds[0].size());
          const int boundary = rounds[static_cast<std::size_t>(stage)][round];
          if (boundary < 0) continue;
          CHECK((boundary == stage || (boundary + 1) % stages == stage));
          ends.insert(boundary);
        }
        for (const int boundary : std::set(ends.begin(), ends.end())) {
          CHECK(ends.count(boundary) == 2);
          CHECK(made.insert(boundary).second);
        }
      }
      CHECK(std::ssize(made) == (stages == 1 ? 0 : ring ? stages : stages - 1));
    }
  }
}

TEST_CASE("channels and tied pairs stay inside one pipeline") {
  ParallelConfig parallel;
  parallel.tensor = 2;
  parallel.pipeline = 3;
  const Topology topology(parallel, 12);  // tensor fastest, then data 2, then stages
  CHECK(boundary_members(topology, 1, 0, false) == std::vector{1, 5});
  CHECK(boundary_members(topology, 1, 0, true) == std::vector{5, 1});
  CHECK(boundary_members(topology, 6, 2, false) == std::vector{10, 2});  // round to the first stage
  CHECK(tied_members(topology, 3) == std::vector{3, 11});
  CHECK(tied_members(topology, 11) == std::vector{3, 11});
  CHECK(tied_members(topology, 7) == std::vector{7});
}
