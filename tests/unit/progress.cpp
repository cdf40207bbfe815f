// SPDX-License-Identifier: Apache-2.0
/// Progress lines: their columns, which steps are printed, the time left, and the closing summary.
#include "llmtrain/metrics/progress.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "support/scratch_folder.hpp"

using namespace llmtrain;

namespace {

/// 1 GFLOP/token by A, 1.5 by B, 0.5 by 6 N, on two ranks of 100 TFLOP/s.
SpeedOfLight light() {
  return {.flops = {.six_n = 0.5e9, .causal = 1e9, .full = 1.5e9},
          .peak = 1e14,
          .peak_formula = "cores x clock",
          .ranks = 2};
}

StepRecord record_of(std::int64_t step, double seconds = 2) {
  return {.step = step,
          .steps = 200,
          .tokens = step * 1000,
          .loss = 3.14159,
          .lr = 3e-4,
          .grad_norm = 1.234,
          .skipped = 0,
          .seconds = seconds,
          .tokens_per_second = 1000 / seconds,
          .mfu = 0,
          .memory_bytes = 123 << 20,
          .valid = {}};
}

struct Run {
  explicit Run(std::int64_t log_every = 1, SpeedOfLight speed_of_light = light())
      : out(::open((folder / "out").c_str(), O_WRONLY | O_CREAT, 0666)),
        log(0, out.get(), out.get()),
        progress(log, std::move(speed_of_light), log_every) {}
  std::vector<std::string> lines() const {
    std::istringstream text(read_file(folder / "out"));
    std::vector<std::string> all;
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  }
  ScratchFolder folder;
  FileDescriptor out;
  Logger log;
  Progress progress;
};

}  // namespace

TEST_CASE("a step's line, before and after the time left is known") {
  Run run;
  run.progress.step(record_of(1));
  StepRecord fast = record_of(12, 0.5);
  fast.tokens_per_second = 82'400'123;
  run.progress.step(fast);
  const auto lines = run.lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] ==
        "step   1/200  loss  3.1416  lr 3.00e-04  norm   1.234  tok/s     500  mfu  0.2%  mem  123 MiB  eta -:--:--");
  CHECK(lines[1] ==
        "step  12/200  loss  3.1416  lr 3.00e-04  norm   1.234  tok/s 82,400,123  mfu 41200.1%  mem  123 MiB  eta "
        "0:01:34");
}

TEST_CASE("lines stay aligned and odd numbers are printed, not hidden") {
  Run run;
  run.progress.step(record_of(9));
  run.progress.step(record_of(10));
  StepRecord bad = record_of(11);
  bad.loss = std::numeric_limits<double>::quiet_NaN();
  bad.grad_norm = std::numeric_limits<double>::infinity();
  bad.skipped = 3;
  run.progress.step(bad);
  const auto lines = run.lines();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].size() == lines[1].size());
  CHECK(lines[2].find("loss     nan  lr 3.00e-04  norm     inf  tok/s") != std::string::npos);
  CHECK(lines[2].ends_with("  skipped 3"));
}

TEST_CASE("without a known peak there is no MFU column") {
  SpeedOfLight unknown_peak = light();
  unknown_peak.peak = 0;
  CHECK(std::isnan(unknown_peak.mfu(1000)));
  Run run(1, unknown_peak);
  run.progress.step(record_of(1));
  run.progress.summary();
  CHECK(run.lines().front().find("mfu") == std::string::npos);
  CHECK(run.lines().back().starts_with("MFU not known"));
}

TEST_CASE("log_every prints the first, every n-th, the last and each skipped step, with the mean speed between") {
  Run run(10);
  for (std::int64_t step = 3; step <= 200; ++step) {
    StepRecord record = record_of(step, step == 20 ? 11 : 1);  // steps 11 to 20: 10,000 tokens in 20 s
    record.skipped = step < 35 ? 7 : 8;                        // 7 were skipped before the resume
    run.progress.step(record);
  }
  const auto lines = run.lines();
  REQUIRE(lines.size() == 1 + 20 + 1);
  CHECK(lines[0].starts_with("step   3/200"));
  CHECK(lines[1].starts_with("step  10/200"));
  CHECK(lines[2].starts_with("step  20/200"));
  CHECK(lines[2].find("tok/s     500") != std::string::npos);
  CHECK(lines[3].find("tok/s   1,000") != std::string::npos);
  CHECK(lines[4].starts_with("step  35/200"));
  CHECK(lines.back().starts_with("step 200/200"));
  CHECK(lines.back().find("eta 0:00:00") != std::string::npos);
}

TEST_CASE("an evaluation is a line of its own, also between printed steps") {
  Run run(100);
  run.progress.step(record_of(1));
  StepRecord record = record_of(50);
  record.valid = {{"wiki", 3.25}, {"code", 2}};
  run.progress.step(record);
  CHECK(run.lines().back() == "eval  50/200  wiki 3.2500  code 2.0000  perplexity 25.79");
}

TEST_CASE("the time left is the median of recent steps, without the first") {
  Run run;
  run.progress.step(record_of(1, 1000));
  CHECK(std::isnan(run.progress.time_left(10)));
  run.progress.step(record_of(2, 2));
  CHECK(run.progress.time_left(10) == 20);
  run.progress.step(record_of(3, 2));
  run.progress.step(record_of(4, 500));  // one slow step
  CHECK(run.progress.time_left(10) == 20);
  StepRecord no_time = record_of(5);
  no_time.seconds = not_measured;
  run.progress.step(no_time);
  CHECK(run.progress.time_left(10) == 20);
  for (std::int64_t step = 6; step < 80; ++step) run.progress.step(record_of(step, 3));  // the old ones are forgotten
  CHECK(run.progress.time_left(10) == 30);
}

TEST_CASE("the summary prints means without the first step, and each MFU with its formula") {
  Run run(1000);
  run.progress.step(record_of(1, 100));
  run.progress.step(record_of(2, 0.01));  // 1000 tokens
  run.progress.step(record_of(3, 0.03));  // 2000 tokens in 0.04 s: 50,000 tok/s, 50 TFLOP/s of 200
  const std::size_t before = run.lines().size();
  run.progress.summary();
  const auto lines = run.lines();
  REQUIRE(lines.size() == before + 4);
  CHECK(lines[before].starts_with("3 steps to step 3 in 0:00:0"));
  CHECK(lines[before].ends_with(", 3,000 tokens seen, loss 3.1416, 0 skipped"));
  CHECK(lines[before + 1] == "mean 50,000 tok/s over steps 2 to 3");
  CHECK(lines[before + 2] == "50.00 TFLOP/s by 6 N + 6 L d s = 1.000 GFLOP/token (causal attention)");
  CHECK(lines[before + 3] ==
        "MFU 25.0% of 100.0 TFLOP/s x 2 ranks (cores x clock); by 6 N + 12 L d s 37.5%, by 6 N 12.5%");
}

TEST_CASE("a run of one step says so, a run of none is silent") {
  Run none;
  none.progress.summary();
  CHECK(none.lines().empty());
  Run one;
  one.progress.step(record_of(7));
  one.progress.summary();
  CHECK(one.lines()[2] == "mean 500 tok/s over step 7 alone");
}

TEST_CASE("the live line fits its terminal, with a bar where there is room") {
  const StepRecord half = record_of(100);
  CHECK(live_line(half, 75, 200, false) ==
        "[####################....................]   50%  step 100/200  loss 3.1416  eta 0:01:15");
  CHECK(live_line(half, 75, 60, false) == "[#####......]   50%  step 100/200  loss 3.1416  eta 0:01:15");
  CHECK(live_line(half, 75, 50, false) == " 50%  step 100/200  loss 3.1416  eta 0:01:15");
  CHECK(live_line(half, 75, 20, false) == " 50%  step 100/200 ");
  CHECK(live_line(half, 75, 0, false).empty());
  for (int columns = 0; columns < 120; ++columns)
    CHECK(std::ssize(live_line(half, 75, columns, false)) <= std::max(columns - 1, 0));
  CHECK(live_line(record_of(199), 1, 100, false).find(" 99%") != std::string::npos);  // never 100 % too early
  CHECK(live_line(record_of(200), 0, 100, false).starts_with("[########################################]  100%"));
  CHECK(live_line(record_of(1), not_measured, 100, false).ends_with("eta -:--:--"));
}

TEST_CASE("the bar has a colour only where colours are wanted") {
  const std::string plain = live_line(record_of(100), 75, 100, false);
  const std::string colored = live_line(record_of(100), 75, 100, true);
  CHECK(plain.find('\x1b') == std::string::npos);
  CHECK(colored.starts_with("[\x1b[32m####################\x1b[0m...................."));
}
