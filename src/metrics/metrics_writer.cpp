// SPDX-License-Identifier: Apache-2.0
/// Lines of metrics.jsonl, and the cut on resume that keeps one line a step.
#include "llmtrain/metrics/metrics_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string_view>

#include <simdjson.h>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/json.hpp"

namespace llmtrain {

namespace {

/// The step that a line of metrics.jsonl belongs to; none if it is not a whole object with a step.
std::optional<std::int64_t> step_of(simdjson::dom::parser& parser, std::string_view line) {
  std::int64_t step = 0;
  if (parser.parse(line.data(), line.size())["step"].get(step) != simdjson::SUCCESS) return std::nullopt;
  return step;
}

/// The lines of steps 1 to `last_step`; the text after the last newline is torn and goes too.
std::string lines_up_to(const std::string& text, std::int64_t last_step) {
  simdjson::dom::parser parser;
  std::string kept;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::optional<std::int64_t> step = step_of(parser, std::string_view(text).substr(begin, end - begin));
    if (step && *step >= 1 && *step <= last_step) kept.append(text, begin, end + 1 - begin);
  }
  return kept;
}

}  // namespace

std::string metrics_line(const StepRecord& record) {
  JsonObject line;
  line.add("schema", 1)
      .add("step", record.step)
      .add("tokens", record.tokens)
      .add("loss", record.loss)
      .add("lr", record.lr)
      .add("grad_norm", record.grad_norm)
      .add("skipped", record.skipped);
  if (!record.valid.empty()) {
    JsonObject valid;
    for (const auto& [name, loss] : record.valid) valid.add(name, loss);
    line.add("valid_loss", record.valid.front().second).add("valid", valid);
  }
  JsonObject exposed, timing;
  exposed.add("total", record.exposed.total());
  for (const auto& [axis, seconds] : record.exposed.axes()) exposed.add(axis, seconds);
  timing.add("step_seconds", record.seconds)
      .add("tokens_per_second", record.tokens_per_second)
      .add("mfu", record.mfu)
      .add("loader_stall", record.loader_stall)
      .add("exposed", exposed)
      .add("memory", record.memory_bytes);
  return line.add("timing", timing).text();
}

MetricsWriter::MetricsWriter(const std::string& path, std::int64_t resumed_step, Logger& log) : path_(path), log_(log) {
  const auto open = [&] { return FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)); };
  file_ = open();
  if (!file_)
    fail(ExitCode::cannot_create,
         "cannot write the metrics '{}': {}; choose another run.dir, check its permissions, or set output.metrics to "
         "false",
         path, errno_text(errno));
  const std::string text = read_file(path);
  const std::string kept = lines_up_to(text, resumed_step);
  if (kept == text) return;
  if (text.starts_with(kept)) {  // the usual case; cutting in place needs no room on the disk
    if (::ftruncate(file_.get(), static_cast<off_t>(kept.size())) != 0)
      fail(ExitCode::io_error, "cannot cut '{}' after step {}: {}", path, resumed_step, errno_text(errno));
  } else {
    atomic_write(path, kept);
    file_ = open();
    require(bool(file_), ExitCode::io_error, "cannot open '{}' again: {}", path, errno_text(errno));
  }
}

void MetricsWriter::write(const StepRecord& record) {
  const off_t before = ::lseek(file_.get(), 0, SEEK_END);
  const int error = write_all(file_.get(), metrics_line(record) + "\n");
  if (error == 0) return;
  // Take a half-written line back, so that the next one starts on a line of its own; if that fails too, a resume drops
  // both.
  if (before >= 0 && ::ftruncate(file_.get(), before) != 0) errno = 0;
  log_.warning("cannot write '{}': {}; training goes on, steps may be missing there", path_, errno_text(error));
}

}  // namespace llmtrain
