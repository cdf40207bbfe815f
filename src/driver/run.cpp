// SPDX-License-Identifier: Apache-2.0
/// The loop around the step: what is logged, when it evaluates, when it saves, when it stops.
#include "llmtrain/driver/run.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/beacon.hpp"
#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/inject.hpp"
#include "llmtrain/base/process_clock.hpp"
#include "llmtrain/base/signals.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/data/loader.hpp"
#include "llmtrain/driver/control.hpp"
#include "llmtrain/driver/run_folder.hpp"
#include "llmtrain/driver/saving.hpp"
#include "llmtrain/driver/state.hpp"
#include "llmtrain/driver/trainer.hpp"
#include "llmtrain/driver/tuning.hpp"
#include "llmtrain/metrics/flops.hpp"
#include "llmtrain/metrics/metrics_writer.hpp"
#include "llmtrain/metrics/process_memory.hpp"
#include "llmtrain/metrics/progress.hpp"
#include "llmtrain/metrics/timing_table.hpp"
#include "llmtrain/optim/skips.hpp"

namespace llmtrain {

namespace {

SpeedOfLight speed_of_light(const Launch& launch) {
  SpeedOfLight light;
  light.flops = flops_per_token(launch.deck.model);
  light.peak = launch.device->peak_flops(data_dtype(launch.deck.precision.compute), &light.peak_formula);
  light.ranks = launch.place.topology.ranks();
  return light;
}

/// Before a save was measured: 100 MB a second for this rank's master weights and moments.
double first_save_seconds(const MemoryPlan& plan) {
  return static_cast<double>(plan.bytes(Segment::master) + plan.bytes(Segment::moments)) / 1e8;
}

/// What a checkpoint takes at least, on all ranks together. Headers come on top.
std::int64_t checkpoint_bytes(const Launch& launch) {
  return count_parameters(launch.deck.model).total * state_bytes_of_element(store_types(launch.deck.precision));
}

/// Of a skipped update; `mine`: this rank's tensors. Collective.
std::string where_not_finite(const MpiComm& world, const std::vector<std::string>& mine) {
  std::vector<std::string> names;
  std::vector<int> ranks;
  int rank = 0;
  for (const std::string& text : world.all_gather(fmt::format("{}", fmt::join(mine, "\n")))) {
    if (!text.empty()) ranks.push_back(rank);
    std::istringstream lines(text);
    for (std::string name; std::getline(lines, name);) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    ++rank;
  }
  if (names.empty()) return "every gradient is finite";
  return fmt::format("not finite: gradients of {} tensors, {} to {}, on {} of {} ranks, first on rank {}", names.size(),
                     names.front(), names.back(), ranks.size(), rank, ranks.front());
}

/// The parts of start-up, one after the other, and their seconds: "4.2 s: launch 2.1, plan 0.3, ...". Made when the first
/// part, the launch, is over.
class StartTimes {
 public:
  void next(const char* part) {
    end_part();
    part_ = part;
    range_.emplace(part);
  }
  /// Ends the last part.
  std::string text() {
    end_part();
    return fmt::format("{:.1f} s: {}", last_, parts_);
  }

 private:
  void end_part() {
    range_.reset();
    const double now = process_seconds();
    parts_ += fmt::format("{}{} {:.1f}", parts_.empty() ? "" : ", ", part_, now - last_);
    last_ = now;
  }

  const char* part_ = "launch";
  std::optional<Beacon::Range> range_;
  std::string parts_;
  double last_ = 0;
};

class Run {
 public:
  Run(Launch& launch, Logger& log, std::int64_t scratch_bytes)
      : launch_(launch),
        deck_(launch.deck),
        log_(log),
        parts_(deck_, launch.place, *launch.device, scratch_bytes),
        train_(make_loader(launch, launch.data.train)),
        trainer_(parts_, *train_, timers_),
        light_(speed_of_light(launch)),
        progress_(log, light_, deck_.output.log_every),
        last_(deck_.run.stop_after > 0 ? std::min(deck_.run.stop_after, deck_.run.steps) : deck_.run.steps),
        step_(launch.resumed ? launch.resumed->state.step : 0),
        skips_(deck_.optimizer.max_skipped, counter("skipped"), counter("skipped_in_a_row")),
        control_(launch.place.world),
        walltime_(deck_.run.max_walltime, first_save_seconds(parts_.plan)),
        saving_(launch, parts_, walltime_, log) {
    for (const ValidSet& set : launch.data.valid) valid_.push_back({set.name, make_loader(launch, set.dataset)});
  }

  /// Before memory holds what must stay.
  void choose_products(const TraceRecorder& step, const RunFolder& folder) {
    const Tensor memory = parts_.largest_free();
    const ProductTuning rank{parts_.kernels.gemm_tuner(), step.products(), parts_.stream, memory};
    const ChosenProducts chosen = llmtrain::choose_products(
        rank, launch_.place.world,
        {choice_cache(), deck_.run.deterministic ? folder.products() : "", launch_.resumed.has_value()});
    if (!chosen.warning.empty()) log_.warning("{}", chosen.warning);
    if (chosen.products == 0) return;
    if (chosen.tuned > 0) parts_.kernels.fill(parts_.stream, memory, 0);  // as the arena gave it
    std::string rate;
    if (chosen.flops_a_second > 0) rate = "; measured over those of a step: " + si(chosen.flops_a_second, "FLOP/s");
    if (!rate.empty() && light_.peak > 0) {
      rate += fmt::format(", {:.1f}% of the peak", 100 * chosen.flops_a_second / light_.peak);
    }
    log_.info("  products {} matrix products, {} tuned in {:.1f} s{}", chosen.products, chosen.tuned, chosen.seconds,
              rate);
  }

  void initial_state() {
    trainer_.prepare(step_ + 1);
    if (!launch_.resumed) {
      parts_.params.initialise(parts_.kernels, parts_.stream, static_cast<std::uint64_t>(deck_.run.seed));
      return;
    }
    StateMirror state(parts_, StatePart::updated);
    load_checkpoint(launch_.place.world, launch_.resumed->checkpoint, state.pieces());
    state.upload();
    log_.info("resumed from {} (step {})", launch_.resumed->checkpoint.folder.string(), step_);
  }

  void open_metrics(const RunFolder& folder) {
    if (launch_.place.rank == 0 && deck_.output.metrics) metrics_.emplace(folder.metrics(), step_, log_);
  }

  /// Trains to the last step or a request to stop; returns the exit code.
  int loop() {
    const std::int64_t first = step_;
    StopReason stop;
    while (step_ < last_ && !stop) {
      control_.post({is_out_of_time(), saving_.is_working(), is_displaced()});
      set_fault_step(++step_);
      Beacon::set_step(step_);
      fault_point("step");
      StepRecord record = one_step();
      const Agreement agreed = control_.read();
      stop = agreed.stop;
      stop_if_displaced(agreed);
      if (!agreed.saving) saving_.advance();
      if (plans(step_).evaluation) evaluate(record);
      progress_.step(record);
      if (metrics_) metrics_->write(record);
      stop_if_diverged();
      if (!stop && plans(step_).save) save(Saving::AfterFailure::go_on);
    }
    if (step_ < last_) return leave(stop);
    const bool wanted = deck_.checkpoint.final || deck_.run.stop_after > 0;
    if (deck_.checkpoint.every > 0 && wanted && (step_ > first || !launch_.resumed)) {
      save(Saving::AfterFailure::end);
    }
    saving_.finish();
    return static_cast<int>(ExitCode::done);
  }

  void closing() {
    progress_.summary();
    log_.info("{}", format_timings(gather_timings(timers_, launch_.place.world), "step"));
  }

 private:
  std::int64_t counter(const std::string& name) const {
    if (!launch_.resumed) return 0;
    const auto& counters = launch_.resumed->state.counters;
    const auto found = counters.find(name);
    return found == counters.end() ? 0 : found->second;
  }

  /// What follows step `n`, by the deck alone: it is the same however often the run is stopped and resumed.
  Plans plans(std::int64_t n) const {
    const std::int64_t eval_every = deck_.data.eval_every, save_every = deck_.checkpoint.every;
    return {.evaluation = !valid_.empty() && eval_every > 0 && (n % eval_every == 0 || n == deck_.run.steps),
            .save = save_every > 0 && n % save_every == 0 && n < last_};
  }

  /// Rank 0's clock decides, so that no two ranks see it differently.
  bool is_out_of_time() const {
    return launch_.place.rank == 0 &&
           walltime_.is_over(process_seconds() + saving_.remaining(), plans(step_ + 1), plans(step_ + 2));
  }

  bool is_displaced() const {
    return std::ranges::any_of(launch_.locks, [](const auto& lock) { return lock->is_lost(); });
  }

  void stop_if_displaced(const Agreement& agreed) const {
    if (!agreed.displaced) return;
    throw AgreedError(
        ExitCode::cannot_create,
        fmt::format("step {}: another run has taken over {}, because this one showed no heartbeat for too "
                    "long; it goes on there, this one ends",
                    step_, deck_.run.dir));
  }

  /// Stopped before the last step: saves, and says why and with what exit code.
  int leave(const StopReason& stop) {
    const std::string why = stop.signal != 0 ? signal_name(stop.signal) : "run.max_walltime";
    if (deck_.checkpoint.every == 0) {
      log_.warning("stopped by {} after step {}; nothing is saved, for checkpoint.every is 0", why, step_);
      return 128 + stop.signal;
    }
    log_.info("stopping after step {}: {}", step_, why);
    save(Saving::AfterFailure::end);
    return static_cast<int>(ExitCode::requeue);
  }

  void stop_if_diverged() {
    if (!skips_.too_many()) return;
    saving_.finish();  // of a state before this one
    throw AgreedError(ExitCode::diverged,
                      fmt::format("step {}: {} updates in a row were skipped, more than optimizer.max_skipped {}: the "
                                  "gradient is not finite any more; lower optimizer.lr, or resume from an earlier "
                                  "checkpoint with another data.seed (checkpoint.allow: [data.seed])",
                                  step_, skips_.in_a_row(), deck_.optimizer.max_skipped));
  }

  void evaluate(StepRecord& record) {
    const Stopwatch watch;
    for (const auto& [name, loader] : valid_) record.valid.emplace_back(name, trainer_.evaluate(*loader));
    walltime_.took_evaluation(watch.seconds());
  }

  StepRecord one_step() {
    const Stopwatch watch;
    const double stalled = trainer_.stalled_seconds();
    StepScalars scalars;
    {
      TimerRange range(timers_, "step");
      trainer_.step(step_);
      scalars = trainer_.result();
    }
    skips_.add(scalars.apply == 0);
    if (scalars.apply == 0) {
      log_.warning("{}; {}; `llmtrain data at DECK --step {}` tells its samples",
                   skips_.message(step_, scalars.loss, scalars.gradient_norm),
                   where_not_finite(launch_.place.world, trainer_.non_finite_gradients()), step_);
    }
    const std::int64_t step_tokens = deck_.schedule.global_batch * deck_.model.seq_len;
    StepRecord record;
    record.seconds = watch.seconds();
    walltime_.took_step(record.seconds);
    record.step = step_;
    record.steps = deck_.run.steps;
    record.tokens = step_ * step_tokens;
    record.loss = scalars.loss;
    record.lr = scalars.lr;
    record.grad_norm = scalars.gradient_norm;
    record.skipped = skips_.total();
    record.tokens_per_second = static_cast<double>(step_tokens) / record.seconds;
    record.mfu = light_.mfu(record.tokens_per_second);
    record.loader_stall = trainer_.stalled_seconds() - stalled;
    record.exposed = trainer_.exposed();
    record.memory_bytes = peak_resident_bytes();
    return record;
  }

  void save(Saving::AfterFailure after) {
    TimerRange range(timers_, "checkpoint");
    saving_.save(step_, {{"skipped", skips_.total()}, {"skipped_in_a_row", skips_.in_a_row()}}, after);
  }

  Launch& launch_;
  const Deck& deck_;
  Logger& log_;
  Timers timers_;
  Parts parts_;
  std::unique_ptr<Loader> train_;
  std::vector<std::pair<std::string, std::unique_ptr<Loader>>> valid_;  ///< by name
  Trainer trainer_;
  SpeedOfLight light_;
  Progress progress_;
  std::optional<MetricsWriter> metrics_;
  const std::int64_t last_;  ///< step after which this run ends
  std::int64_t step_;        ///< updates done
  Skips skips_;
  Control control_;
  Walltime walltime_;
  Saving saving_;
};

}  // namespace

int run_training(Launch& launch, Logger& log) {
  StartTimes times;
  times.next("plan");
  // Plan, with nothing allocated, and say what will happen.
  const Measured measured = measure(launch.deck, launch.place.topology, launch.place.rank, launch.device->kind());
  const RunFolder folder = prepare_run_folder(launch, checkpoint_bytes(launch));
  if (!launch.resumed) enter_run_folder(folder, launch, log);
  log.info("{}", summary(launch, measured));
  for (const std::string& warning : launch.warnings) log.warning("{}", warning);

  times.next("memory and groups");
  Run run(launch, log, measured.scratch_bytes);
  const auto body = [&] {
    times.next("products");
    run.choose_products(measured.trace, folder);
    times.next("state");
    run.initial_state();
    if (launch.resumed) enter_run_folder(folder, launch, log);
    run.open_metrics(folder);
    log.info("  start    {}", times.text());
    const int code = run.loop();
    run.closing();
    return code;
  };
  return or_end_job(launch.place.world, body, [&] {
    log.status("");
    launch.locks.clear();
  });
}

}  // namespace llmtrain
