// SPDX-License-Identifier: Apache-2.0
// ranks: 1 3
/// Timings gathered over ranks that opened different ranges.
#include "llmtrain/metrics/timing_table.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

using namespace llmtrain;

TEST_CASE("every rank gets the same rows, with the last rank the slowest") {
  const MpiComm world = MpiComm::world();
  const int last = world.size() - 1;
  Timers timers;
  {
    TimerRange range(timers, "step");
    if (world.rank() == last) {
      TimerRange head(timers, "head");
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
  }
  const std::vector<TimingRow> rows = gather_timings(timers, world);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].ranks == world.size());
  CHECK(rows[0].slowest_rank == last);
  CHECK(rows[0].min_seconds <= rows[0].mean_seconds);
  CHECK(rows[0].mean_seconds <= rows[0].max_seconds);
  CHECK(rows[1].path == "step/head");
  CHECK(rows[1].ranks == 1);
  CHECK(rows[1].min_seconds >= 0.03);
  const std::vector<std::string> tables = world.all_gather(format_timings(rows, "step"));
  for (const std::string& table : tables) CHECK(table == tables.front());
}
