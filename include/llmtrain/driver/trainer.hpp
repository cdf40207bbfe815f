// SPDX-License-Identifier: Apache-2.0
/// Trainer: steps and evaluations of one rank on real data. It leaves nothing behind, so one process can build, run and
/// destroy many.
#pragma once

#include "llmtrain/base/timer.hpp"
#include "llmtrain/data/read_ahead.hpp"
#include "llmtrain/driver/step.hpp"
#include "llmtrain/parallel/exposed.hpp"

namespace llmtrain {

class Trainer {
 public:
  /// All arguments outlive the trainer, and `train` is read by its thread alone.
  Trainer(Parts& parts, Loader& train, Timers& timers);

  /// Reads the data of update `n` while other work is done.
  void prepare(std::int64_t n) { train_.prepare(n); }

  /// Issues update `n` (1-based). Its numbers are ready when result() is called, best one step later.
  void step(std::int64_t n);
  /// The numbers of the last step; waits for it.
  StepScalars result();
  /// Tensors with values that are not finite among what this rank counts of the last step's gradients; one wait a tensor.
  std::vector<std::string> non_finite_gradients();
  /// Mean loss over the first data.eval_batches global batches of `valid`; always the same ones.
  double evaluate(Loader& valid);
  /// Seconds that steps waited for data, in all.
  double stalled_seconds() const { return train_.stalled_seconds(); }
  /// Communication that nothing hid, of the last step whose result() was read.
  const Exposed& exposed() const { return exposed_; }
  /// What update `n` is given.
  StepInputs inputs(std::int64_t n) const;
  /// Forward, backward and reduction of step `n`'s data without update; returns the totals over all ranks.
  StepTotals gradients(std::int64_t n);

 private:
  /// Before the first transfer between stages: see warm_up().
  void warm_up_once();
  void load(ReadAhead& from, std::int64_t step, std::int64_t micro, Batch& batch);
  StepTotals read_totals();
  /// Of what was waited for since the last call; also a range of the timers.
  Exposed take_exposed();

  Parts& parts_;
  ReadAhead train_;
  Timers& timers_;
  bool warm_ = false;
  Exposed exposed_;
  std::array<double, step_scalars_size> scalars_{};
};

}  // namespace llmtrain
