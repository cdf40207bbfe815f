// SPDX-License-Identifier: Apache-2.0
/// How many threads a rank starts: its share of the cores that it may run on.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "llmtrain/driver/resolve.hpp"

using namespace llmtrain;

namespace {

int share(const std::vector<std::string>& allowed, int own) { return share_of_cores(allowed, own); }

}  // namespace

TEST_CASE("ranks that are not bound share all cores of the node") {
  CHECK(share({"11111111"}, 0) == 8);
  CHECK(share({"11111111", "11111111"}, 1) == 4);
  CHECK(share({"11111111", "11111111", "11111111"}, 2) == 2);
  CHECK(share({"111111", "111111", "111111"}, 0) == 2);
  CHECK(share({"11", "11", "11", "11"}, 3) == 1);
}

TEST_CASE("ranks that are bound have their cores for themselves, or with those bound to the same ones") {
  CHECK(share({"1000", "0100"}, 0) == 1);
  CHECK(share({"11110000", "00001111"}, 0) == 4);
  CHECK(share({"11110000", "00001111"}, 1) == 4);
  CHECK(share({"11110000", "11110000", "00001111", "00001111"}, 2) == 2);
  CHECK(share({"11111111", "11110000"}, 0) == 6);
  CHECK(share({"11111111", "11110000"}, 1) == 2);
  CHECK(share({"0", "1"}, 0) == 1);
}

TEST_CASE("a number that was asked for is taken") { CHECK(thread_count(7, MpiComm{}) == 7); }
