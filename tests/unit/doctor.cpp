// SPDX-License-Identifier: Apache-2.0
/// What llmtrain doctor calls slow, and among what it compares.
#include "llmtrain/tools/doctor.hpp"

#include <doctest/doctest.h>

using namespace llmtrain;

namespace {

/// Two hosts of two ranks: quick messages inside, slow ones between, all ranks alike.
Health healthy() {
  Health health;
  health.message_bytes = 1 << 20;
  for (const char* host : {"a", "a", "b", "b"}) {
    health.ranks.push_back({host, "processor", -1, {"0-3", "0", true}, 100e9, 10e9});
  }
  for (int first = 0; first < 4; ++first) {
    for (int second = first + 1; second < 4; ++second) {
      health.pairs.push_back({first, second, first / 2 == second / 2 ? 50e9 : 5e9});
    }
  }
  health.groups = {{"tp", {0, 1}, 1e-6, 30e9, 30e9, 30e9},
                   {"tp", {2, 3}, 1e-6, 30e9, 30e9, 30e9},
                   {"shard", {0, 2}, 9e-6, 3e9, 3e9, 3e9},
                   {"shard", {1, 3}, 9e-6, 3e9, 3e9, 3e9}};
  return health;
}

}  // namespace

TEST_CASE("nothing ails ranks that are alike, however slow the links between hosts are") {
  CHECK(ailments(healthy(), 0.8).empty());
  CHECK(ailments(healthy(), 1).empty());
}

TEST_CASE("what is slower than its like is named with figure, median and unit") {
  Health health = healthy();
  health.ranks[2].product_rate = 60e9;
  health.ranks[3].copy_rate = 7.9e9;
  health.pairs[1].rate = 2e9;  // ranks 0 and 2
  health.groups[3].latency = 18e-6;
  health.groups[1].all_gather = 10e9;
  const std::vector<std::string> found = ailments(health, 0.8);
  REQUIRE(found.size() == 5);
  CHECK(found[0] == "rank 2 on b: product 60 GFLOP/s, 60% of the median's speed (100 GFLOP/s)");
  CHECK(found[1] == "rank 3 on b: copy 7.9 GB/s, 79% of the median's speed (10 GB/s)");
  CHECK(found[2] == "rank 0 on a and rank 2 on b: messages between hosts 2 GB/s, 40% of the median's speed (5 GB/s)");
  CHECK(found[3] == "tp of ranks 2-3: all-gather of tp 10 GB/s, 50% of the median's speed (20 GB/s)");
  CHECK(found[4] == "shard of ranks 1, 3: latency of shard 18 us, 75% of the median's speed (13.5 us)");
  CHECK(ailments(health, 0.5).size() == 1);
}

TEST_CASE("a rank far from its GPU is named") {
  Health health = healthy();
  health.ranks[1].device_numa_node = 1;
  CHECK(ailments(health, 0.8).empty());
  health.ranks[1].binding.near_device = false;
  const std::vector<std::string> found = ailments(health, 0.8);
  REQUIRE(found.size() == 1);
  CHECK(found[0].starts_with("rank 1 on a: runs on NUMA node 0, its GPU is at node 1; bind"));
}

TEST_CASE("the report shows every rank, pair and group") {
  const std::string text = health_report(healthy());
  CHECK(text.starts_with("4 ranks on 2 hosts, messages and tensors of 1.00 MiB"));
  CHECK(text.find("ranks 0-3: processor\n") != std::string::npos);
  CHECK(text.find("messages between hosts: 5.00 to 5.00, median 5.00") != std::string::npos);
  CHECK(text.find("    3    5.00    5.00   50.00       -\n") != std::string::npos);
  CHECK(text.find("shard      1, 3 ") != std::string::npos);
}
