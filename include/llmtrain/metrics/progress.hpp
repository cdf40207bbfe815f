// SPDX-License-Identifier: Apache-2.0
/// The run as a person follows it: one aligned line a step, a line an evaluation, a bar below them on a terminal, and the
/// summary at the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/log.hpp"
#include "llmtrain/metrics/flops.hpp"
#include "llmtrain/metrics/step_record.hpp"

namespace llmtrain {

/// What turns tokens per second into a fraction of the hardware.
struct SpeedOfLight {
  FlopsPerToken flops;  ///< of the model
  double peak = 0;      ///< dense FLOP/s of one rank's device in the precision of the matrix products; 0 = not known
  std::string peak_formula;  ///< how the peak was found (Device::peak_flops)
  int ranks = 1;

  /// Model FLOPs utilization: the fraction of all ranks' peak that `flops_a_token` at this speed takes; NaN without a
  /// peak.
  double fraction(double flops_a_token, double tokens_per_second) const;
  /// The MFU that records carry: convention A.
  double mfu(double tokens_per_second) const { return fraction(flops.causal, tokens_per_second); }
};

/// A bar of the steps done with percentage, step, loss and the time left, for a terminal of so many columns: one less is
/// used, and the bar is the first to go.
std::string live_line(const StepRecord& record, double seconds_left, int columns, bool colors);

/// Prints through the Logger what output.log_every asks for; it sees every step, because means and the time left need
/// them. The first step seen (memory is touched, libraries warm up) counts in no mean and no estimate.
class Progress {
 public:
  /// `log_every` steps between lines; the first step seen, the last one and each with a skipped update are always
  /// printed.
  Progress(Logger& log, SpeedOfLight light, std::int64_t log_every);

  /// A step's line, an evaluation line when record.valid is not empty, and the live line where there is a terminal. With log_every > 1 speed and MFU are means
  /// since the last line.
  void step(const StepRecord& record);

  /// The closing summary; nothing if no step was seen.
  void summary();

  /// Seconds that `steps` more take by the median of the recent ones; NaN before the second step.
  double time_left(std::int64_t steps) const;

 private:
  /// Steps' times and tokens added up.
  struct Span {
    double seconds = 0;
    double tokens = 0;
    void add(const StepRecord& record);
    double speed() const { return seconds > 0 ? tokens / seconds : not_measured; }
  };

  bool is_printed(const StepRecord& record) const;
  void update_live_line(const StepRecord& record);
  std::string step_line(const StepRecord& record);

  Logger& log_;
  SpeedOfLight light_;
  std::int64_t log_every_;
  Stopwatch watch_;
  std::int64_t seen_ = 0;
  std::int64_t first_step_ = 0;
  StepRecord last_;
  Span since_line_;
  Span measured_;               ///< without the first step
  std::vector<double> recent_;  ///< seconds of the last steps, oldest first
  std::size_t speed_width_ = 7;
  Stopwatch since_live_line_;
};

}  // namespace llmtrain
