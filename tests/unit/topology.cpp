// SPDX-License-Identifier: Apache-2.0
/// Ranks and coordinates are one-to-one and groups partition the world, on a grid of layouts.
#include "llmtrain/topology/topology.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "llmtrain/base/error.hpp"

using namespace llmtrain;

namespace {

ParallelConfig layout(int tensor, int pipeline, int shard, RankOrder order) {
  ParallelConfig parallel;
  parallel.tensor = tensor;
  parallel.pipeline = pipeline;
  parallel.shard = shard;
  parallel.order = order;
  return parallel;
}

const std::vector<AxisSet> axis_sets{Axis::tp, Axis::cp,  Axis::shard, Axis::replicate,
                                     Axis::pp, data_axes, model_axes,  world_axes};

void check_groups(const Topology& topology, AxisSet axes) {
  std::vector<int> seen(static_cast<std::size_t>(topology.ranks()));
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    const std::vector<int> members = topology.members(axes, rank);
    REQUIRE(static_cast<int>(members.size()) == topology.size(axes));
    CHECK(std::is_sorted(members.begin(), members.end()));
    CHECK(members.at(static_cast<std::size_t>(topology.index(axes, rank))) == rank);
    CHECK(members.front() == topology.color(axes, rank));
    for (const int member : members) CHECK(topology.members(axes, member) == members);
    for (const Axis axis : {Axis::tp, Axis::cp, Axis::shard, Axis::replicate, Axis::pp}) {
      std::set<int> positions;
      for (const int member : members) positions.insert(topology.coordinates(member).along(axis));
      CHECK(static_cast<int>(positions.size()) == (axes.contains(axis) ? topology.size(axis) : 1));
    }
    ++seen[static_cast<std::size_t>(members.front())];
  }
  CHECK(std::accumulate(seen.begin(), seen.end(), 0) == topology.ranks());
}

}  // namespace

TEST_CASE("ranks and coordinates are one-to-one, groups partition the world") {
  for (const RankOrder order : {RankOrder::tp_dp_pp, RankOrder::tp_pp_dp}) {
    for (const int tensor : {1, 2, 3}) {
      for (const int pipeline : {1, 2}) {
        for (const int data : {1, 4}) {
          for (const int shard : {0, 1, 2}) {
            if (shard > data) continue;
            const int ranks = tensor * pipeline * data;
            const Topology topology(layout(tensor, pipeline, shard, order), ranks);
            CHECK(topology.size(world_axes) == ranks);
            CHECK(topology.size(data_axes) == data);
            for (int rank = 0; rank < ranks; ++rank) CHECK(topology.rank(topology.coordinates(rank)) == rank);
            for (const AxisSet axes : axis_sets) check_groups(topology, axes);
          }
        }
      }
    }
  }
}

TEST_CASE("tp runs fastest, then data with shard inside, then pp") {
  const Topology megatron(layout(2, 2, 2, RankOrder::tp_dp_pp), 16);
  CHECK(megatron.coordinates(13) == Coordinates{.tp = 1, .cp = 0, .shard = 0, .replicate = 1, .pp = 1});
  CHECK(megatron.members(Axis::tp, 13) == std::vector{12, 13});
  CHECK(megatron.members(Axis::shard, 13) == std::vector{13, 15});
  CHECK(megatron.members(Axis::replicate, 13) == std::vector{9, 13});
  CHECK(megatron.members(data_axes, 13) == std::vector{9, 11, 13, 15});
  CHECK(megatron.members(Axis::pp, 13) == std::vector{5, 13});
  CHECK(megatron.members(model_axes, 13) == std::vector{4, 5, 12, 13});
  const Topology pipeline_inside(layout(2, 2, 0, RankOrder::tp_pp_dp), 16);
  CHECK(pipeline_inside.members(Axis::pp, 13) == std::vector{13, 15});
  CHECK(pipeline_inside.members(data_axes, 13) == std::vector{1, 5, 9, 13});
  CHECK(pipeline_inside.index(data_axes, 13) == 3);
}

TEST_CASE("layouts that do not fit the ranks are configuration errors") {
  CHECK_THROWS_AS(Topology(layout(2, 1, 0, RankOrder::tp_dp_pp), 3), Error);
  CHECK_THROWS_AS(Topology(layout(1, 1, 3, RankOrder::tp_dp_pp), 4), Error);
  CHECK_THROWS_AS(Topology(layout(1, 1, 0, RankOrder::tp_dp_pp), 0), Error);
}
