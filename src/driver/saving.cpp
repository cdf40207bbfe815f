// SPDX-License-Identifier: Apache-2.0
/// One save at a time, in phases that all ranks leave together.
#include "llmtrain/driver/saving.hpp"

#include <algorithm>

#include "llmtrain/base/digest.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/config/dump.hpp"

namespace llmtrain {

Saving::Saving(const Launch& launch, Parts& parts, Walltime& walltime, Logger& log)
    : launch_(launch), parts_(parts), walltime_(walltime), log_(log) {}

CheckpointState Saving::state(std::int64_t step, std::map<std::string, std::int64_t> counters) const {
  CheckpointState state;
  state.step = step;
  state.run_id = digest_of(to_yaml(launch_.deck, DumpFor::run_id));
  state.deck = to_yaml(launch_.deck, DumpFor::checkpoint);
  state.samples = launch_.deck.data.samples;
  state.counters = std::move(counters);
  state.identity = launch_.identity;
  return state;
}

void Saving::save(std::int64_t step, std::map<std::string, std::int64_t> counters, AfterFailure after) {
  finish();
  const CheckpointConfig& config = launch_.deck.checkpoint;
  const bool in_background = config.async && after == AfterFailure::go_on;
  begun_.restart();
  step_ = step;
  after_ = after;
  guarded([&] {
    mirror_.emplace(parts_, StatePart::owned, parts_.checkpoint_copy);
    mirror_->download();
    save_.emplace(launch_.place.world, config.dir, state(step, std::move(counters)), mirror_->pieces(),
                  SaveOptions{config.keep, config.verify, launch_.protect, in_background});
  });
  if (!in_background) finish();
}

void Saving::advance() {
  if (!save_) return;
  guarded([&] {
    if (!save_->advance()) return;
    const SaveResult& result = save_->result();
    for (const std::string& note : result.notes) {
      constexpr std::string_view mark = "warning: ";
      if (note.starts_with(mark)) {
        log_.warning("{}", note.substr(mark.size()));
      } else {
        log_.info("{}", note);
      }
    }
    log_.info("committed {} ({})", result.folder.string(), human_bytes(result.bytes));
    failed_ = 0;
    walltime_.took_save(begun_.seconds());
    save_.reset();
    mirror_.reset();
  });
}

void Saving::finish() {
  while (save_) advance();
}

double Saving::remaining() const { return save_ ? std::max(walltime_.save_seconds() - begun_.seconds(), 0.0) : 0; }

void Saving::guarded(const std::function<void()>& action) {
  try {
    action();
  } catch (const AgreedError& error) {
    save_.reset();
    mirror_.reset();
    walltime_.took_save(begun_.seconds());
    fail(error);
  }
}

void Saving::fail(const AgreedError& error) {
  ++failed_;
  if (after_ == AfterFailure::end) {
    throw AgreedError(ExitCode::io_error,
                      fmt::format("the checkpoint of step {}, the last of this run, failed: {}", step_, error.what()));
  }
  if (failed_ >= launch_.deck.checkpoint.max_failed) {
    throw AgreedError(
        ExitCode::io_error,
        fmt::format("{} saves in a row failed (checkpoint.max_failed), the last one: {}", failed_, error.what()));
  }
  log_.warning("the checkpoint of step {} failed, training goes on: {}", step_, error.what());
}

}  // namespace llmtrain
