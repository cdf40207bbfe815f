// SPDX-License-Identifier: Apache-2.0
/// Which rank sits where, in words.
#include "llmtrain/topology/placement.hpp"

#include <doctest/doctest.h>

using namespace llmtrain;

namespace {

Topology layout(std::vector<int> nodes, int tensor, int pipeline, RankOrder order = RankOrder::tp_dp_pp) {
  ParallelConfig parallel;
  parallel.tensor = tensor;
  parallel.pipeline = pipeline;
  parallel.order = order;
  const auto ranks = static_cast<int>(nodes.size());
  return {parallel, ranks, std::move(nodes)};
}

}  // namespace

TEST_CASE("numbers are drawn together") {
  CHECK(ranges(std::vector<int>{}) == "");
  CHECK(ranges(std::vector{4}) == "4");
  CHECK(ranges(std::vector{0, 1, 2, 5, 7, 8}) == "0-2, 5, 7-8");
}

TEST_CASE("every rank is in one line of the placement") {
  using Lines = std::vector<std::string>;
  CHECK(placement(layout(filled_nodes(8, 4), 2, 2)) ==
        Lines{"node 0  stage 0  ranks 0-3  data 0-1  tensor 0-1", "node 1  stage 1  ranks 4-7  data 0-1  tensor 0-1"});
  CHECK(placement(layout(filled_nodes(8, 4), 2, 2, RankOrder::tp_pp_dp)) ==
        Lines{"node 0  stage 0  ranks 0-1  data 0  tensor 0-1", "node 0  stage 1  ranks 2-3  data 0  tensor 0-1",
              "node 1  stage 0  ranks 4-5  data 1  tensor 0-1", "node 1  stage 1  ranks 6-7  data 1  tensor 0-1"});
  // Launchers may deal ranks out over nodes one by one.
  CHECK(placement(layout({0, 1, 0, 1}, 1, 1)) ==
        Lines{"node 0  stage 0  ranks 0, 2  data 0, 2  tensor 0", "node 1  stage 0  ranks 1, 3  data 1, 3  tensor 0"});
}

TEST_CASE("tensor groups that leave their node are counted") {
  CHECK(split_tensor_groups(layout(filled_nodes(8, 4), 2, 2)) == "");
  CHECK(split_tensor_groups(layout({0, 1, 0, 1, 0, 1}, 1, 2)) == "");
  const std::string text = split_tensor_groups(layout(filled_nodes(12, 6), 4, 1));
  CHECK(text.find("1 of 3 tensor groups leave their node (first: ranks 4-7 on nodes 0-1)") == 0);
  CHECK(text.find("parallel.tensor 4 should divide the ranks of every node (the smallest has 6)") != std::string::npos);
}

TEST_CASE("groups that leave their node") {
  const Topology even = layout(filled_nodes(8, 4), 2, 1);  // data ranks 0 2 4 6 and 1 3 5 7
  CHECK(even.leaves_node(Axis::shard, 3));
  CHECK(!even.leaves_node(Axis::tp, 3));
  const Topology uneven = layout({0, 0, 0, 1, 1, 1}, 2, 1);
  CHECK(!uneven.leaves_node(Axis::tp, 0));
  CHECK(uneven.leaves_node(Axis::tp, 2));
  CHECK(uneven.leave_nodes(Axis::tp));
  CHECK(!even.leave_nodes(Axis::tp));
  CHECK(!Topology(ParallelConfig{}, 8).leaves_node(Axis::shard, 0));  // nothing is known of nodes: one
}
