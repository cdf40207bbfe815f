// SPDX-License-Identifier: Apache-2.0
/// When a run stops before its end: signals and the walltime, agreed by all ranks at step boundaries.
#pragma once

#include <cstdint>

#include "llmtrain/base/mpi_maximum.hpp"

namespace llmtrain {

/// Why a run stops; false: it goes on.
struct StopReason {
  int signal = 0;            ///< the largest number noted on any rank; 0: none
  bool out_of_time = false;  ///< run.max_walltime is near
  explicit operator bool() const { return signal != 0 || out_of_time; }
};

/// What one rank knows before a step, besides its stop signal.
struct Notice {
  bool out_of_time = false;  ///< by rank 0's clock
  bool saving = false;       ///< its thread is at work on a save
  bool displaced = false;    ///< another run has taken over the folder
};

/// What the ranks know together.
struct Agreement {
  StopReason stop;
  bool saving = false;     ///< on some rank
  bool displaced = false;  ///< on some rank
};

/// Each rank posts what it knows before a step and reads what all know after it, so all leave after the same step.
class Control {
 public:
  explicit Control(const MpiComm& world) : flags_(world, 4) {}  ///< Collective.

  void post(const Notice& notice);  ///< with this rank's stop signal. Collective.
  Agreement read();                 ///< of what all ranks posted. Collective.

 private:
  MpiMaximum flags_;
};

/// Kinds of work between two boundaries.
struct Plans {
  bool evaluation = false;
  bool save = false;
};

/// Decides by measured times when a run must stop so that its last save still fits into run.max_walltime.
class Walltime {
 public:
  /// Seconds; limit 0: none. `first_save` is assumed until a save was measured.
  Walltime(double limit, double first_save) : limit_(limit), save_(first_save) {}

  // Measured seconds; the longest of a kind is kept, for a save the last.
  void took_step(double seconds);
  void took_evaluation(double seconds);
  void took_save(double seconds);

  /// True if after `elapsed` seconds the steps `next` and `after` and a save behind them would end beyond the limit. A
  /// request is read one step later, so going on means that both are made.
  bool is_over(double elapsed, Plans next, Plans after) const;

  double save_seconds() const { return save_; }  ///< of the last save, or what is assumed

 private:
  double time_of(Plans plans) const;

  double limit_;
  double save_;
  double step_ = 0;
  double evaluation_ = 0;
};

}  // namespace llmtrain
