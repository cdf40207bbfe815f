// SPDX-License-Identifier: Apache-2.0
/// The run's metrics.jsonl: one JSON object a step, for plots and comparisons.
#pragma once

#include <cstdint>
#include <string>

#include "llmtrain/base/files.hpp"
#include "llmtrain/base/log.hpp"
#include "llmtrain/metrics/step_record.hpp"

namespace llmtrain {

/// One line of metrics.jsonl without its newline:
///   {"schema": 1, "step", "tokens", "loss", "lr", "grad_norm", "skipped",
///    "valid_loss", "valid": {name: loss},               only on evaluation steps; valid_loss is the first set's
///    "timing": {"step_seconds", "tokens_per_second", "mfu", "loader_stall",
///               "exposed": {"total", "tensor", "pipeline", "data", "world"}, "memory"}}
/// The members are StepRecord's: tokens is the global number seen after the step, skipped the total so far, memory is
/// in bytes, mfu a fraction, loader_stall the seconds that rank 0 waited for data, exposed those in which it computed nothing
/// because it waited for communication (parallel/exposed.hpp). Everything that depends on the clock or
/// the machine is in `timing`, so two equal runs have equal lines without it. Non-finite numbers are null.
std::string metrics_line(const StepRecord& record);

/// Appends a line a step. Only rank 0 makes one. Each line is one write() and is never left torn while the program
/// lives; a line that cannot be written is left out, with one warning in the run.
class MetricsWriter {
 public:
  /// Opens `path`. `resumed_step` is the step of the loaded checkpoint, 0 for a fresh start: lines of later steps, torn
  /// lines and lines that are no metrics are removed. Error: cannot_create or io_error, before any training.
  MetricsWriter(const std::string& path, std::int64_t resumed_step, Logger& log);

  void write(const StepRecord& record);

 private:
  std::string path_;
  Logger& log_;
  FileDescriptor file_;
};

}  // namespace llmtrain
