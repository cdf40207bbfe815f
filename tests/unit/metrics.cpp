// SPDX-License-Identifier: Apache-2.0
/// metrics.jsonl: the line's members, null, the cut on resume, and a disk without room.
#include "llmtrain/metrics/metrics_writer.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <limits>

#include "llmtrain/base/error.hpp"
#include "llmtrain/metrics/process_memory.hpp"
#include "support/scratch_folder.hpp"

using namespace llmtrain;

namespace {

StepRecord record_of(std::int64_t step) {
  return {.step = step,
          .steps = 200,
          .tokens = step * 8192,
          .loss = 0.1 + 0.2,
          .lr = 3e-4,
          .grad_norm = 1.25,
          .skipped = 2,
          .seconds = 0.5,
          .tokens_per_second = 16384,
          .mfu = 0.412,
          .loader_stall = 0,
          .exposed = {.tensor = 0.25, .pipeline = 0, .data = 0.0625, .world = 0.125},
          .memory_bytes = 1 << 20,
          .valid = {}};
}

std::string lines(std::int64_t first, std::int64_t last) {
  std::string text;
  for (std::int64_t step = first; step <= last; ++step) text += metrics_line(record_of(step)) + "\n";
  return text;
}

/// What is in the file after a writer that resumed at `step` wrote the next line.
std::string resumed(const std::string& before, std::int64_t step) {
  const ScratchFolder folder;
  atomic_write(folder / "metrics.jsonl", before);
  Logger log(1);
  MetricsWriter writer(folder / "metrics.jsonl", step, log);
  writer.write(record_of(step + 1));
  return read_file(folder / "metrics.jsonl");
}

}  // namespace

TEST_CASE("a line has the documented members") {
  CHECK(
      metrics_line(record_of(12)) ==
      R"({"schema": 1, "step": 12, "tokens": 98304, "loss": 0.30000000000000004, )"
      R"("lr": 3e-04, "grad_norm": 1.25, "skipped": 2, )"
      R"("timing": {"step_seconds": 0.5, "tokens_per_second": 16384, "mfu": 0.412, "loader_stall": 0, )"
      R"("exposed": {"total": 0.4375, "tensor": 0.25, "pipeline": 0, "data": 0.0625, "world": 0.125}, "memory": 1048576}})");
}

TEST_CASE("evaluation adds the first set's loss and all of them by name") {
  StepRecord record = record_of(50);
  record.valid = {{"wiki \"en\"", 3.5}, {"code", std::numeric_limits<double>::infinity()}};
  CHECK(metrics_line(record).find(
            R"("skipped": 2, "valid_loss": 3.5, "valid": {"wiki \"en\"": 3.5, "code": null}, "timing")") !=
        std::string::npos);
}

TEST_CASE("non-finite numbers are null") {
  StepRecord record = record_of(1);
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.grad_norm = std::numeric_limits<double>::infinity();
  record.mfu = not_measured;
  const std::string line = metrics_line(record);
  CHECK(line.find(R"("loss": null)") != std::string::npos);
  CHECK(line.find(R"("grad_norm": null)") != std::string::npos);
  CHECK(line.find(R"("mfu": null)") != std::string::npos);
}

TEST_CASE("a resume keeps the lines up to its step") {
  CHECK(resumed(lines(1, 10), 6) == lines(1, 7));
  CHECK(resumed(lines(1, 6), 6) == lines(1, 7));
  CHECK(resumed(lines(1, 4), 6) == lines(1, 4) + lines(7, 7));  // lines lost in a crash stay lost
  CHECK(resumed(lines(1, 10), 0) == lines(1, 1));               // a fresh start
  CHECK(resumed("", 0) == lines(1, 1));
}

TEST_CASE("torn and foreign lines are cut too") {
  const std::string whole = lines(7, 7);
  for (std::size_t cut = 1; cut < whole.size(); cut += 7)
    CHECK(resumed(lines(1, 6) + whole.substr(0, cut), 9) == lines(1, 6) + lines(10, 10));
  CHECK(resumed(lines(1, 3) + whole.substr(0, whole.size() - 1), 7) ==
        lines(1, 3) + lines(8, 8));  // whole, but for its newline
  CHECK(resumed(lines(1, 2) + whole.substr(0, 40) + "\n" + lines(3, 4), 4) == lines(1, 5));  // torn in the middle
  CHECK(resumed(lines(1, 2) + "\n[1]\n{\"step\": \"3\"}\n{\"step\": -1}\n" + std::string(50, '\0') + "\n" + lines(3, 3),
                3) == lines(1, 4));
}

TEST_CASE("a file that cannot be made is an error that names the way out") {
  const ScratchFolder folder;
  Logger log(1);
  try {
    MetricsWriter writer(folder / "none/metrics.jsonl", 0, log);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::cannot_create);
    CHECK(std::string(error.what()).find("output.metrics") != std::string::npos);
  }
}

TEST_CASE("a full disk is one warning, leaves no torn line, and lines go on when there is room") {
  const ScratchFolder folder;
  const FileDescriptor errors(::open((folder / "err").c_str(), O_WRONLY | O_CREAT, 0666));
  Logger log(0, 1, errors.get());
  MetricsWriter writer(folder / "metrics.jsonl", 0, log);
  writer.write(record_of(1));
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small{static_cast<rlim_t>(lines(1, 1).size() + 40), limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  writer.write(record_of(2));
  writer.write(record_of(3));
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, old_handler);
  writer.write(record_of(4));
  CHECK(read_file(folder / "metrics.jsonl") == lines(1, 1) + lines(4, 4));
  const std::string warnings = read_file(folder / "err");
  CHECK(warnings.starts_with("warning: cannot write '"));
  CHECK(std::count(warnings.begin(), warnings.end(), '\n') == 1);
}

TEST_CASE("the process's memory is told, and its peak does not shrink") {
  const std::int64_t before = resident_bytes();
  CHECK(before > 1 << 20);
  constexpr std::size_t block = 64 << 20;  // of its own: the allocator might give memory that is resident already
  void* memory = ::mmap(nullptr, block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  CHECK(resident_bytes() >= before + (48 << 20));
  ::munmap(memory, block);
  CHECK(peak_resident_bytes() >= before + (48 << 20));
  CHECK(peak_resident_bytes() < std::int64_t{1} << 40);
}
