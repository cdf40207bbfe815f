// SPDX-License-Identifier: Apache-2.0
/// Runs the schedules of all stages of a pipeline on paper: do they end, how long do stages wait, how many activations are
/// alive.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/schedule/schedule.hpp"

namespace llmtrain {

/// Ticks that things take.
struct Durations {
  std::function<std::int64_t(int stage, const Action& work)> work;  ///< of a forward or backward
  std::function<std::int64_t(int sender)> transfer;                 ///< from when both ends are ready
};
/// A forward takes one tick, a backward two, a transfer none.
Durations unit_durations();

struct Simulation {
  struct Work {
    Action action;
    std::int64_t begin = 0, end = 0;  ///< ticks
  };
  std::vector<std::vector<Work>> work;  ///< by stage, in order
  std::vector<std::int64_t> in_flight;  ///< by stage: most activations alive at once, of all chunks
  std::int64_t ticks = 0;               ///< until the last stage is through
  std::string stuck;                    ///< what each stage waits for, if they do not end

  bool finished() const { return stuck.empty(); }
  double idle() const;  ///< share of the stages' time without work
};

/// The strictest rules of any back end: a stage issues its actions in order and stands still where one waits (for a tensor
/// to arrive, or for one of its buffers to be sent); a channel's operations run in issue order, without tags (the k-th send
/// meets the k-th receive); a send ends when its receive was issued and all before it have ended. `stages` are the actions
/// by stage; a receive that meets the send of another tensor is an error of the schedules: Error(internal).
Simulation simulate(std::span<const std::vector<Action>> stages, const Durations& durations = unit_durations());

/// All stages of a schedule.
std::vector<std::vector<Action>> make_schedules(ScheduleKind kind, int stages, std::int64_t micro_batches, int chunks);

/// One line a stage, one cell a tick: F3 is the forward of micro-batch 3, B3 its backward (with chunks F3.1 is chunk 1's),
/// a dot no work.
std::string draw(const Simulation& simulation);

}  // namespace llmtrain
