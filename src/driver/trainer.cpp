// SPDX-License-Identifier: Apache-2.0
/// Data in, numbers out; the step itself is driver/step.cpp.
#include "llmtrain/driver/trainer.hpp"

#include <array>

#include "llmtrain/optim/lr.hpp"

namespace llmtrain {

Trainer::Trainer(Parts& parts, Loader& train, Timers& timers) : parts_(parts), train_(train), timers_(timers) {}

void Trainer::upload(const MicroBatch& micro_batch, const Batch& batch) {
  const auto put = [&](Tensor tensor, const void* host) { parts_.device.upload(parts_.stream, tensor, host); };
  put(batch.tokens, micro_batch.tokens.data());
  put(batch.targets, micro_batch.targets.data());
  put(batch.weights, micro_batch.weights.data());
  put(batch.positions, micro_batch.positions.data());
  put(batch.order, micro_batch.order.data());
  if (batch.starts) put(batch.starts, micro_batch.starts.data());
  if (batch.samples) put(batch.samples, micro_batch.samples.data());
}

StepInputs Trainer::inputs(std::int64_t n) const {
  const OptimizerConfig& o = parts_.deck.optimizer;
  return {n, learning_rate(o, parts_.deck.run.steps, n), o.betas[0], o.betas[1], o.clip};
}

void Trainer::step(std::int64_t n) {
  run_step(
      parts_, inputs(n), [&](std::int64_t micro, const Batch& batch) { upload(train_.load(n, micro), batch); },
      timers_);
  parts_.device.download(parts_.stream, scalars_.data(), parts_.scalars);
}

StepScalars Trainer::result() {
  parts_.stream.synchronize();
  return {scalars_[0], scalars_[1], scalars_[2], scalars_[3], scalars_[4], scalars_[5], scalars_[6], scalars_[7]};
}

StepTotals Trainer::read_totals() {
  std::array<double, step_totals_size> totals{};
  parts_.device.download(parts_.stream, totals.data(), parts_.totals);
  parts_.stream.synchronize();
  return {totals[0], totals[1], totals[2], totals[3]};
}

double Trainer::evaluate(Loader& valid) {
  TimerRange range(timers_, "evaluate");
  const std::int64_t a_step = parts_.micro_batches();
  run_evaluation(parts_, parts_.deck.data.eval_batches * a_step,
                 [&](std::int64_t m, const Batch& batch) { upload(valid.load(1 + m / a_step, m % a_step), batch); });
  const StepTotals totals = read_totals();
  return totals.loss / totals.tokens;
}

StepTotals Trainer::gradients(std::int64_t n) {
  run_gradients(
      parts_, [&](std::int64_t micro, const Batch& batch) { upload(train_.load(n, micro), batch); }, timers_);
  return read_totals();
}

}  // namespace llmtrain
