// SPDX-License-Identifier: Apache-2.0
/// Which rank sits where, in words.
#include "llmtrain/topology/placement.hpp"

#include <doctest/doctest.h>

using namespace llmtrain;

namespace {

Topology layout(int ranks, int tensor, int pipeline, RankOrder order = RankOrder::tp_dp_pp) {
  ParallelConfig parallel;
  parallel.tensor = tensor;
  parallel.pipeline = pipeline;
  parallel.order = order;
  return {parallel, ranks};
}

}  // namespace

TEST_CASE("numbers are drawn together") {
  CHECK(ranges(std::vector<int>{}) == "");
  CHECK(ranges(std::vector{4}) == "4");
  CHECK(ranges(std::vector{0, 1, 2, 5, 7, 8}) == "0-2, 5, 7-8");
}

TEST_CASE("every rank is in one line of the placement") {
  using Lines = std::vector<std::string>;
  CHECK(placement(layout(8, 2, 2), std::vector{0, 0, 0, 0, 1, 1, 1, 1}) ==
        Lines{"node 0  stage 0  ranks 0-3  data 0-1  tensor 0-1", "node 1  stage 1  ranks 4-7  data 0-1  tensor 0-1"});
  CHECK(placement(layout(8, 2, 2, RankOrder::tp_pp_dp), std::vector{0, 0, 0, 0, 1, 1, 1, 1}) ==
        Lines{"node 0  stage 0  ranks 0-1  data 0  tensor 0-1", "node 0  stage 1  ranks 2-3  data 0  tensor 0-1",
              "node 1  stage 0  ranks 4-5  data 1  tensor 0-1", "node 1  stage 1  ranks 6-7  data 1  tensor 0-1"});
  // Launchers may deal ranks out over nodes one by one.
  CHECK(placement(layout(4, 1, 1), std::vector{0, 1, 0, 1}) ==
        Lines{"node 0  stage 0  ranks 0, 2  data 0, 2  tensor 0", "node 1  stage 0  ranks 1, 3  data 1, 3  tensor 0"});
}

TEST_CASE("tensor groups that leave their node are counted") {
  CHECK(split_tensor_groups(layout(8, 2, 2), std::vector{0, 0, 0, 0, 1, 1, 1, 1}) == "");
  CHECK(split_tensor_groups(layout(6, 1, 2), std::vector{0, 1, 0, 1, 0, 1}) == "");
  const std::string text = split_tensor_groups(layout(12, 4, 1), std::vector{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1});
  CHECK(text.find("1 of 3 tensor groups leave their node (first: ranks 4-7 on nodes 0-1)") == 0);
  CHECK(text.find("parallel.tensor 4 should divide the ranks of every node (the smallest has 6)") != std::string::npos);
}
