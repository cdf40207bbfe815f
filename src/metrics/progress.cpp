// SPDX-License-Identifier: Apache-2.0
/// Lines of the running log; fmt prints with a point in every locale.
#include "llmtrain/metrics/progress.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "llmtrain/base/median.hpp"
#include "llmtrain/base/text.hpp"

namespace llmtrain {

namespace {

constexpr std::size_t recent_steps = 32;
constexpr std::ptrdiff_t widest_bar = 40;
constexpr std::ptrdiff_t narrowest_bar = 5;
constexpr double live_line_seconds = 0.1;  // between updates: as fast as one can follow

std::string percent(double fraction) {
  return std::isfinite(fraction) ? fmt::format("{:.1f}%", 100 * fraction) : "n/a";
}

std::string speed_text(double tokens_per_second) {
  return std::isfinite(tokens_per_second) ? grouped(std::llround(tokens_per_second)) : "n/a";
}

/// "step  12/200" with the number as wide as the total, so that lines stay aligned.
std::string counter(const char* what, const StepRecord& record) {
  const std::string total = fmt::format("{}", record.steps);
  return fmt::format("{} {:>{}}/{}", what, record.step, total.size(), total);
}

std::string evaluation_line(const StepRecord& record) {
  std::string line = counter("eval", record);
  for (const auto& [name, loss] : record.valid) line += fmt::format("  {} {:.4f}", name, loss);
  return line + fmt::format("  perplexity {:.2f}", std::exp(record.valid.front().second));
}

}  // namespace

std::string live_line(const StepRecord& record, double seconds_left, int columns, bool colors) {
  const double done = static_cast<double>(record.step) / static_cast<double>(std::max<std::int64_t>(record.steps, 1));
  std::string text = fmt::format("{:>3.0f}%  {}  loss {:.4f}  eta {}", std::floor(100 * done), counter("step", record),
                                 record.loss, duration(seconds_left));
  const std::ptrdiff_t room = columns - 1;
  const std::ptrdiff_t bar = std::min(widest_bar, room - std::ssize(text) - 4);  // two brackets, two spaces
  if (bar < narrowest_bar) return text.substr(0, static_cast<std::size_t>(std::max<std::ptrdiff_t>(room, 0)));
  const auto filled = static_cast<std::size_t>(done * static_cast<double>(bar));
  const std::string full(filled, '#');
  return fmt::format("[{}{}]  {}", colors ? "\x1b[32m" + full + "\x1b[0m" : full,
                     std::string(static_cast<std::size_t>(bar) - filled, '.'), text);
}

double SpeedOfLight::fraction(double flops_a_token, double tokens_per_second) const {
  return peak > 0 ? flops_a_token * tokens_per_second / (peak * ranks) : not_measured;
}

void Progress::Span::add(const StepRecord& record) {
  if (!std::isfinite(record.seconds) || !std::isfinite(record.tokens_per_second)) return;
  seconds += record.seconds;
  tokens += record.seconds * record.tokens_per_second;
}

Progress::Progress(Logger& log, SpeedOfLight light, std::int64_t log_every)
    : log_(log), light_(std::move(light)), log_every_(std::max<std::int64_t>(log_every, 1)) {}

bool Progress::is_printed(const StepRecord& record) const {
  const bool skipped = seen_ > 0 && record.skipped > last_.skipped;
  return seen_ == 0 || skipped || record.step % log_every_ == 0 || record.step == record.steps;
}

void Progress::step(const StepRecord& record) {
  const bool printed = is_printed(record);
  since_line_.add(record);
  if (seen_ == 0) {
    first_step_ = record.step;
  } else {
    measured_.add(record);
    if (std::isfinite(record.seconds)) recent_.push_back(record.seconds);
    if (recent_.size() > recent_steps) recent_.erase(recent_.begin());
  }
  ++seen_;
  if (printed) {
    log_.info("{}", step_line(record));
    since_line_ = {};
  }
  if (!record.valid.empty()) log_.info("{}", evaluation_line(record));
  update_live_line(record);
  last_ = record;
}

void Progress::update_live_line(const StepRecord& record) {
  if (!log_.terminal() || (seen_ > 1 && since_live_line_.seconds() < live_line_seconds)) return;
  since_live_line_.restart();
  log_.status(
      live_line(record, time_left(record.steps - record.step), log_.terminal().columns(), log_.terminal().colors()));
}

std::string Progress::step_line(const StepRecord& record) {
  const double speed = since_line_.speed();
  const std::string speed_column = speed_text(speed);
  speed_width_ = std::max(speed_width_, speed_column.size());
  std::string line = fmt::format("{}  loss {:>7.4f}  lr {:.2e}  norm {:>7.3f}  tok/s {:>{}}", counter("step", record),
                                 record.loss, record.lr, record.grad_norm, speed_column, speed_width_);
  if (light_.peak > 0) line += fmt::format("  mfu {:>5}", percent(light_.mfu(speed)));
  line += fmt::format("  mem {:>8}  eta {}", human_bytes(record.memory_bytes),
                      duration(time_left(record.steps - record.step)));
  if (record.skipped > 0) line += fmt::format("  skipped {}", record.skipped);
  return line;
}

double Progress::time_left(std::int64_t steps) const {
  if (recent_.empty()) return steps == 0 ? 0 : not_measured;
  return median(recent_) * static_cast<double>(steps);
}

void Progress::summary() {
  log_.status("");
  if (seen_ == 0) return;
  const bool only_first = measured_.seconds <= 0;
  const double speed = only_first ? last_.tokens_per_second : measured_.speed();
  log_.info("{} step{} to step {} in {}, {} tokens seen, loss {:.4f}, {} skipped", seen_, seen_ == 1 ? "" : "s",
            last_.step, duration(watch_.seconds()), grouped(last_.tokens), last_.loss, last_.skipped);
  log_.info("mean {} tok/s over {}", speed_text(speed),
            only_first ? fmt::format("step {} alone", first_step_)
                       : fmt::format("steps {} to {}", first_step_ + 1, last_.step));
  const FlopsPerToken& flops = light_.flops;
  log_.info("{} by 6 N + 6 L d s = {} (causal attention)", si(flops.causal * speed, "FLOP/s"),
            si(flops.causal, "FLOP/token"));
  if (light_.peak > 0) {
    log_.info("MFU {} of {} x {} rank{} ({}); by 6 N + 12 L d s {}, by 6 N {}", percent(light_.mfu(speed)),
              si(light_.peak, "FLOP/s"), light_.ranks, light_.ranks == 1 ? "" : "s", light_.peak_formula,
              percent(light_.fraction(flops.full, speed)), percent(light_.fraction(flops.six_n, speed)));
  } else {
    log_.info("MFU not known: this device's peak is not known; by 6 N + 12 L d s {}, by 6 N {}",
              si(flops.full * speed, "FLOP/s"), si(flops.six_n * speed, "FLOP/s"));
  }
}

}  // namespace llmtrain
