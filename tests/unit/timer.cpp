// SPDX-License-Identifier: Apache-2.0
/// Timer ranges: nesting, totals, exceptions, reset; the merge over ranks and its table.
#include "llmtrain/base/timer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "llmtrain/metrics/timing_table.hpp"

using namespace llmtrain;

namespace {

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

void step(Timers& timers) {
  TimerRange whole(timers, "step");
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    TimerRange range(timers, "forward");
    TimerRange inner(timers, "attention");
    nap();
  }
  TimerRange range(timers, "attention");
}

}  // namespace

TEST_CASE("ranges nest and add up; one name under two parents is two ranges") {
  Timers timers;
  step(timers);
  step(timers);
  REQUIRE(timers.totals().size() == 4);
  const auto& totals = timers.totals();
  CHECK(totals[0].path == "step");
  CHECK(totals[1].path == "step/forward");
  CHECK(totals[2].path == "step/forward/attention");
  CHECK(totals[3].path == "step/attention");
  CHECK(totals[0].calls == 2);
  CHECK(totals[1].calls == 4);
  CHECK(totals[3].calls == 2);
  CHECK(totals[2].seconds >= 0.008);
  CHECK(totals[1].seconds >= totals[2].seconds);
  CHECK(totals[0].seconds >= totals[1].seconds + totals[3].seconds);
}

TEST_CASE("an exception closes its ranges, and reset keeps the names") {
  Timers timers;
  try {
    TimerRange range(timers, "step");
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
  }
  { TimerRange range(timers, "save"); }
  REQUIRE(timers.totals().size() == 2);
  CHECK(timers.totals()[1].path == "save");  // not step/save
  timers.reset();
  CHECK(timers.totals()[0].calls == 0);
  CHECK(timers.totals()[0].seconds == 0);
  { TimerRange range(timers, "step"); }
  CHECK(timers.totals().size() == 2);
  CHECK(timers.totals()[0].calls == 1);
}

TEST_CASE("an observer sees ranges begin and end as they nest, by exceptions too") {
  struct Seen : RangeObserver {
    void begin(const char* name) override { text += std::string("<") + name; }
    void end() override { text += ">"; }
    std::string text;
  } seen;
  Timers timers;
  { TimerRange range(timers, "before"); }
  Timers::set_observer(&seen);
  try {
    TimerRange range(timers, "step");
    { TimerRange inner(timers, "forward"); }
    TimerRange inner(timers, "reduce");
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
  }
  Timers::set_observer(nullptr);
  { TimerRange range(timers, "after"); }
  CHECK(seen.text == "<step<forward><reduce>>");
}

TEST_CASE("ranks merge into a tree with the slowest named") {
  const std::vector<std::vector<TimerTotal>> by_rank = {
      {{"step", 2, 4.0},
       {"step/forward", 8, 1.0},
       {"step/forward/embedding", 8, 0.5},
       {"save", 1, 9.0},
       {"idle", 0, 0.0}},
      {{"step", 2, 4.0}, {"step/forward", 8, 3.0}, {"step/forward/head", 8, 2.0}, {"step/update", 2, 0.5}}};
  const std::vector<TimingRow> rows = merge_timings(by_rank);
  std::vector<std::string> paths;
  for (const TimingRow& row : rows) paths.push_back(row.path);
  CHECK(paths == std::vector<std::string>{"step", "step/forward", "step/forward/embedding", "step/forward/head",
                                          "step/update", "save"});
  const TimingRow& forward = rows[1];
  CHECK(forward.ranks == 2);
  CHECK(forward.calls == 8);
  CHECK(forward.min_seconds == 1);
  CHECK(forward.mean_seconds == 2);
  CHECK(forward.max_seconds == 3);
  CHECK(forward.slowest_rank == 1);
  CHECK(rows[0].slowest_rank == 0);
  CHECK(rows[3].ranks == 1);
  CHECK(rows[3].slowest_rank == 1);

  const std::string table = format_timings(rows, "step");
  CHECK(std::count(table.begin(), table.end(), '\n') == 6);
  const std::size_t line = table.find("\nstep/forward ");
  REQUIRE(line != std::string::npos);
  const std::string text = table.substr(line + 1, table.find('\n', line + 1) - line - 1);
  CHECK(text.find("50.0%") != std::string::npos);
  CHECK(text.size() == table.find('\n'));  // aligned with the heading
  CHECK(format_timings(rows, "none").find('%') == std::string::npos);
}

TEST_CASE("without a communicator the table is this process's") {
  Timers timers;
  step(timers);
  const std::vector<TimingRow> rows = gather_timings(timers, MpiComm());
  REQUIRE(rows.size() == 4);
  CHECK(rows[1].calls == 2);
  CHECK(rows[1].max_seconds == timers.totals()[1].seconds);
}
