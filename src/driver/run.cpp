// SPDX-License-Identifier: Apache-2.0
/// The loop around the step: what is logged, when it evaluates, when it saves, when it stops.
#include "llmtrain/driver/run.hpp"

#include <algorithm>
#include <optional>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/digest.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/checkpoint/saver.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/data/loader.hpp"
#include "llmtrain/driver/run_folder.hpp"
#include "llmtrain/driver/state.hpp"
#include "llmtrain/driver/trainer.hpp"
#include "llmtrain/metrics/metrics_writer.hpp"
#include "llmtrain/metrics/process_memory.hpp"
#include "llmtrain/metrics/progress.hpp"
#include "llmtrain/metrics/timing_table.hpp"

namespace llmtrain {

namespace {

SpeedOfLight speed_of_light(const Launch& launch) {
  SpeedOfLight light;
  light.flops = flops_per_token(launch.deck.model);
  light.peak = launch.device->peak_flops(data_dtype(launch.deck.precision.compute), &light.peak_formula);
  light.ranks = launch.place.topology.ranks();
  return light;
}

class Run {
 public:
  Run(Launch& launch, Logger& log, std::int64_t scratch_bytes, const RunFolder& folder)
      : launch_(launch),
        deck_(launch.deck),
        log_(log),
        parts_(deck_, launch.place, *launch.device, scratch_bytes),
        train_(make_loader(deck_, launch.place, launch.data.train)),
        valid_(launch.data.valid ? make_loader(deck_, launch.place, launch.data.valid) : nullptr),
        trainer_(parts_, *train_, valid_.get(), timers_),
        light_(speed_of_light(launch)),
        progress_(log, light_, deck_.output.log_every) {
    if (launch.resumed) {
      step_ = launch.resumed->state.step;
      skipped_ = launch.resumed->state.counters.at("skipped");
    }
    if (launch.place.rank == 0 && deck_.output.metrics) metrics_.emplace(folder.metrics(), step_, log);
  }

  void initial_state() {
    if (!launch_.resumed) {
      parts_.params.initialise(parts_.kernels, parts_.stream, static_cast<std::uint64_t>(deck_.run.seed));
      return;
    }
    StateMirror state(parts_, StatePart::updated);
    load_checkpoint(launch_.place.world, launch_.resumed->checkpoint, state.pieces());
    state.upload();
    log_.info("resumed from {} (step {})", launch_.resumed->checkpoint.folder.string(), step_);
  }

  void loop() {
    const std::int64_t stop =
        deck_.run.stop_after > 0 ? std::min(deck_.run.stop_after, deck_.run.steps) : deck_.run.steps;
    const std::int64_t first = step_;
    while (step_ < stop) {
      ++step_;
      StepRecord record = one_step();
      if (is_evaluation(stop)) record.valid.emplace_back("valid", trainer_.evaluate());
      progress_.step(record);
      if (metrics_) metrics_->write(record);
      const std::int64_t every = deck_.checkpoint.every;
      if (every > 0 && step_ < stop && step_ % every == 0) save();
    }
    const bool last = deck_.checkpoint.final || deck_.run.stop_after > 0;
    if (deck_.checkpoint.every > 0 && last && (step_ > first || !launch_.resumed)) save();
  }

  void closing() {
    progress_.summary();
    log_.info("{}", format_timings(gather_timings(timers_, launch_.place.world), "step"));
  }

 private:
  bool is_evaluation(std::int64_t stop) const {
    return valid_ != nullptr && deck_.data.eval_every > 0 && (step_ % deck_.data.eval_every == 0 || step_ == stop);
  }

  StepRecord one_step() {
    const Stopwatch watch;
    StepScalars scalars;
    {
      TimerRange range(timers_, "step");
      trainer_.step(step_);
      scalars = trainer_.result();
    }
    skipped_ += scalars.apply == 0 ? 1 : 0;
    const std::int64_t step_tokens = deck_.schedule.global_batch * deck_.model.seq_len;
    StepRecord record;
    record.seconds = watch.seconds();
    record.step = step_;
    record.steps = deck_.run.steps;
    record.tokens = step_ * step_tokens;
    record.loss = scalars.loss;
    record.lr = scalars.lr;
    record.grad_norm = scalars.gradient_norm;
    record.skipped = skipped_;
    record.tokens_per_second = static_cast<double>(step_tokens) / record.seconds;
    record.mfu = light_.mfu(record.tokens_per_second);
    record.memory_bytes = peak_resident_bytes();
    return record;
  }

  void save() {
    TimerRange range(timers_, "checkpoint");
    CheckpointState state;
    state.step = step_;
    state.run_id = digest_of(to_yaml(deck_, DumpFor::run_id));
    state.deck = to_yaml(deck_, DumpFor::checkpoint);
    state.samples = deck_.data.samples;
    state.counters["skipped"] = skipped_;
    state.identity["tokenizer"] = launch_.tokenizer->digest();
    try {
      StateMirror mirror(parts_, StatePart::owned);
      mirror.download();
      const SaveResult result = save_checkpoint(launch_.place.world, deck_.checkpoint.dir, state, mirror.pieces(),
                                                {deck_.checkpoint.keep, deck_.checkpoint.verify, launch_.protect});
      failed_saves_ = 0;
      for (const std::string& note : result.notes) log_.info("{}", note);
      log_.info("committed {} ({})", result.folder.string(), human_bytes(result.bytes));
    } catch (const AgreedError& error) {
      ++failed_saves_;
      require(failed_saves_ < deck_.checkpoint.max_failed, ExitCode::io_error,
              "{} saves in a row failed (checkpoint.max_failed), the last one: {}", failed_saves_, error.what());
      log_.warning("the checkpoint of step {} failed, training goes on: {}", step_, error.what());
    }
  }

  Launch& launch_;
  const Deck& deck_;
  Logger& log_;
  Timers timers_;
  Parts parts_;
  std::unique_ptr<Loader> train_;
  std::unique_ptr<Loader> valid_;
  Trainer trainer_;
  SpeedOfLight light_;
  Progress progress_;
  std::optional<MetricsWriter> metrics_;
  std::int64_t step_ = 0;  ///< updates done
  std::int64_t skipped_ = 0;
  std::int64_t failed_saves_ = 0;
};

}  // namespace

void run_training(Launch& launch, Logger& log) {
  // Plan, with nothing allocated, and say what will happen.
  const Measured measured = measure(launch.deck, launch.place.topology, launch.place.rank, launch.device->kind());
  const RunFolder folder = prepare_run_folder(launch);
  if (launch.place.rank == 0) log.attach_file(folder.log(), launch.resumed.has_value());
  log.info("{}", summary(launch, measured));
  for (const std::string& warning : launch.warnings) log.warning("{}", warning);

  Run run(launch, log, measured.scratch_bytes, folder);
  run.initial_state();
  run.loop();
  run.closing();
}

}  // namespace llmtrain
