// SPDX-License-Identifier: Apache-2.0
/// Data in, numbers out; the step itself is driver/step.cpp.
#include "llmtrain/driver/trainer.hpp"

#include <array>

#include "llmtrain/driver/step_phases.hpp"
#include "llmtrain/optim/lr.hpp"

namespace llmtrain {

Trainer::Trainer(Parts& parts, Loader& train, Timers& timers)
    : parts_(parts), train_(train, load_order(parts.actions), parts.deck.run.steps, timers), timers_(timers) {}

void Trainer::load(ReadAhead& from, std::int64_t step, std::int64_t micro, Batch& batch) {
  const MicroBatch micro_batch = from.load(step, micro);
  const auto put = [&](Tensor tensor, const void* host) { parts_.device.upload(parts_.stream, tensor, host); };
  put(batch.tokens, micro_batch.tokens.data());
  put(batch.targets, micro_batch.targets.data());
  put(batch.weights, micro_batch.weights.data());
  put(batch.positions, micro_batch.positions.data());
  put(batch.order, micro_batch.order.data());
  if (batch.starts) put(batch.starts, micro_batch.starts.data());
  batch.documents = micro_batch.documents;
  if (batch.samples) put(batch.samples, micro_batch.samples.data());
}

StepInputs Trainer::inputs(std::int64_t n) const {
  const OptimizerConfig& o = parts_.deck.optimizer;
  return {n, learning_rate(o, parts_.deck.run.steps, n), o.betas[0], o.betas[1], o.clip};
}

void Trainer::warm_up_once() {
  if (!warm_ && parts_.pipeline.stages > 1 && parts_.device.kind() == DeviceKind::cuda) warm_up(parts_);
  warm_ = true;
}

void Trainer::step(std::int64_t n) {
  warm_up_once();
  run_step(
      parts_, inputs(n), [&](std::int64_t micro, Batch& batch) { load(train_, n, micro, batch); }, timers_);
  parts_.device.download(parts_.stream, scalars_.data(), parts_.scalars);
}

StepScalars Trainer::result() {
  parts_.stream.synchronize();
  exposed_ = take_exposed();
  return {scalars_[0], scalars_[1], scalars_[2], scalars_[3], scalars_[4], scalars_[5], scalars_[6], scalars_[7]};
}

Exposed Trainer::take_exposed() {
  const Exposed exposed = by_axis(parts_.device.take_exposed());
  auto axes = exposed.axes();
  std::erase_if(axes, [](const auto& axis) { return axis.second == 0; });
  if (!axes.empty()) timers_.add("exposed", axes);
  return exposed;
}

StepTotals Trainer::read_totals() {
  std::array<double, step_totals_size> totals{};
  parts_.device.download(parts_.stream, totals.data(), parts_.totals);
  parts_.stream.synchronize();
  return {totals[0], totals[1], totals[2], totals[3]};
}

std::vector<std::string> Trainer::non_finite_gradients() {
  std::vector<std::string> names;
  for (int i = 0; i < parts_.shape.storages(); ++i) {
    parts_.kernels.fill(parts_.stream, parts_.totals, 0.0);
    add_squares(parts_, i);
    if (read_totals().non_finite > 0) names.push_back(parts_.shape.spec(i).name);
  }
  return names;
}

double Trainer::evaluate(Loader& valid) {
  warm_up_once();
  TimerRange range(timers_, "evaluate");
  const std::int64_t count = parts_.deck.data.eval_batches * parts_.micro_batches();
  ReadAhead reader(valid, load_order(evaluation_actions(parts_, count)), 1, timers_);
  run_evaluation(parts_, count, [&](std::int64_t micro, Batch& batch) { load(reader, 1, micro, batch); });
  const StepTotals totals = read_totals();
  take_exposed();
  return totals.loss / totals.tokens;
}

StepTotals Trainer::gradients(std::int64_t n) {
  warm_up_once();
  run_gradients(
      parts_, [&](std::int64_t micro, Batch& batch) { load(train_, n, micro, batch); }, timers_);
  return read_totals();
}

}  // namespace llmtrain
