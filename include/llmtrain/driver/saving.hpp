// SPDX-License-Identifier: Apache-2.0
/// The saves of a run: what they hold, what follows when one fails, and those that go on beside the training.
#pragma once

#include <functional>
#include <optional>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/log.hpp"
#include "llmtrain/checkpoint/saver.hpp"
#include "llmtrain/driver/control.hpp"
#include "llmtrain/driver/launch.hpp"
#include "llmtrain/driver/state.hpp"

namespace llmtrain {

class Saving {
 public:
  /// What a failed save means: a periodic one is tried again at its next time, the last one of a run is not.
  enum class AfterFailure { go_on, end };

  /// All arguments outlive it.
  Saving(const Launch& launch, Parts& parts, Walltime& walltime, Logger& log);

  /// Saves the parts' state after `step` updates. With checkpoint.async a periodic save is only copied before this comes
  /// back; one that is still under way is waited for first. Throws AgreedError(io_error) where the last save of a run
  /// fails, or the checkpoint.max_failed-th in a row. Collective.
  void save(std::int64_t step, std::map<std::string, std::int64_t> counters, AfterFailure after);
  /// True while this rank writes in the background.
  bool is_working() const { return save_ && save_->is_working(); }
  /// Goes on with a save under way, once all ranks have agreed that none is working. Throws as save(). Collective.
  void advance();
  /// Waits for the save under way, if there is one. Throws as save(). Collective.
  void finish();
  /// Seconds that the save under way is still thought to take; 0 without one.
  double remaining() const;

 private:
  CheckpointState state(std::int64_t step, std::map<std::string, std::int64_t> counters) const;
  void guarded(const std::function<void()>& action);
  void fail(const AgreedError& error);

  const Launch& launch_;
  Parts& parts_;
  Walltime& walltime_;
  Logger& log_;
  std::optional<StateMirror> mirror_;  ///< of the save under way
  std::optional<Save> save_;           ///< under way
  Stopwatch begun_;
  std::int64_t step_ = 0;
  AfterFailure after_ = AfterFailure::go_on;
  std::int64_t failed_ = 0;  ///< in a row
};

}  // namespace llmtrain
