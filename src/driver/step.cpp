// SPDX-License-Identifier: Apache-2.0
/// The step reads as its description; timer ranges carry the same names.
#include "llmtrain/driver/step.hpp"

#include "llmtrain/driver/step_phases.hpp"

namespace llmtrain {

namespace {

StageEnds wait_for_neighbours(Parts& parts, const Action& work, Timers& timers) {
  if (parts.pipeline.stages == 1) return parts.boundaries.ends(work, parts.stream);
  TimerRange range(timers, "pipeline");
  return parts.boundaries.ends(work, parts.stream);
}

/// Sums over ranks of loss, tokens, squares and the non-finite flag: one small all-reduce.
void reduce_totals(Parts& parts) {
  if (parts.world == nullptr) return;
  Communicator::Batch batch(*parts.world, parts.stream.record());
  batch.all_reduce(parts.totals);
  parts.stream.wait(batch.submit());
}

}  // namespace

void begin_gradients(Parts& parts) {
  parts.kernels.fill(parts.stream, parts.totals, 0.0);
  parts.params.begin_pass(parts.step_leases.weights, parts.stream);
  parts.grads.begin_step(parts.stream);
}

void run_action(Parts& parts, const Action& action, const LoadBatch& load, Timers& timers) {
  if (!action.computes()) return parts.boundaries.start(action, parts.stream);
  Context ctx = parts.context();
  Batch& batch = parts.batch(action);
  const bool forward = action.kind == Action::Kind::forward;
  if (forward) {
    TimerRange range(timers, "data");
    load(action.micro_batch, batch);
  }
  const StageEnds ends = wait_for_neighbours(parts, action, timers);
  TimerRange range(timers, forward ? "forward" : "backward");
  if (forward) {
    parts.stage(action).forward(ctx, batch, action.slot, ends, parts.params, parts.grads, parts.totals);
  } else {
    parts.stage(action).backward(ctx, batch, action.slot, ends, parts.params, parts.grads);
  }
}

void finish_gradients(Parts& parts, Timers& timers) {
  TimerRange range(timers, "reduce");
  parts.grads.finish(parts.stream);
  for (int i = 0; i < parts.shape.storages(); ++i) add_squares(parts, i);
  reduce_totals(parts);
}

void add_squares(Parts& parts, int storage) {
  for (const Span& span : parts.shape.counted(storage)) {
    parts.kernels.sum_squares(parts.stream, parts.totals, parts.grads.own_chunk(storage).flat(span.begin, span.count));
  }
}

void run_gradients(Parts& parts, const LoadBatch& load, Timers& timers) {
  begin_gradients(parts);
  for (const Action& action : parts.actions) run_action(parts, action, load, timers);
  finish_gradients(parts, timers);
}

void update_weights(Parts& parts, const StepInputs& inputs, Timers& timers) {
  TimerRange range(timers, "update");
  parts.kernels.step_scalars(parts.stream, parts.scalars, parts.totals, inputs);
  parts.optimizer.update(parts.kernels, parts.stream, parts.params, parts.grads, parts.scalars);
  parts.params.publish();
}

void run_step(Parts& parts, const StepInputs& inputs, const LoadBatch& load, Timers& timers) {
  run_gradients(parts, load, timers);
  update_weights(parts, inputs, timers);
}

void warm_up(Parts& parts) {
  Timers timers;
  begin_gradients(parts);
  for (const Action& action : parts.actions) {
    if (action.computes())
      run_action(
          parts, action, [](std::int64_t, const Batch&) {}, timers);
  }
  finish_gradients(parts, timers);
  parts.stream.synchronize();
}

std::vector<std::int64_t> load_order(std::span<const Action> actions) {
  std::vector<std::int64_t> order;
  for (const Action& action : actions) {
    if (action.kind == Action::Kind::forward) order.push_back(action.micro_batch);
  }
  return order;
}

std::vector<Action> evaluation_actions(const Parts& parts, std::int64_t micro_batches) {
  ScheduleShape pipeline = parts.pipeline;
  pipeline.micro_batches = micro_batches;
  return make_forward_schedule(pipeline);
}

void run_evaluation(Parts& parts, std::int64_t micro_batches, const LoadBatch& load) {
  Context ctx = parts.context();
  parts.kernels.fill(parts.stream, parts.totals, 0.0);
  for (const Action& action : evaluation_actions(parts, micro_batches)) {
    if (!action.computes()) {
      parts.boundaries.start(action, parts.stream);
      continue;
    }
    parts.params.begin_pass(parts.pieces[static_cast<std::size_t>(action.chunk)].forward().weights, parts.stream);
    load(action.micro_batch, parts.batch(action));
    const StageEnds ends = parts.boundaries.ends(action, parts.stream);
    parts.stage(action).evaluate(ctx, parts.batch(action), ends, parts.params, parts.totals);
  }
  reduce_totals(parts);
}

}  // namespace llmtrain
