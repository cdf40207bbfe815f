// SPDX-License-Identifier: Apache-2.0
/// Moments and the update, storage by storage.
#include "llmtrain/optim/adamw.hpp"

namespace llmtrain {

AdamW::AdamW(const OptimizerConfig& config, const StoreShape& shape, MemoryPlan& plan)
    : config_(config), shape_(shape) {
  for (int i = 0; i < shape.storages(); ++i) {
    const std::string& name = shape.spec(i).name;
    const std::int64_t elements = shape.updated_elements(i);
    first_slots_.push_back(plan.request(Segment::moments, name, shape.types.moments, {elements}));
    second_slots_.push_back(plan.request(Segment::moments, name, shape.types.moments, {elements}));
  }
}

void AdamW::bind(const Arena& arena) {
  for (const Slot slot : first_slots_) first_.push_back(arena[slot]);
  for (const Slot slot : second_slots_) second_.push_back(arena[slot]);
}

void AdamW::update(Kernels& kernels, Stream stream, ParamStore& params, const GradStore& grads, Tensor scalars) {
  for (int i = 0; i < shape_.storages(); ++i) {
    const AdamWOptions options{config_.betas[0], config_.betas[1], config_.eps,
                               shape_.spec(i).decay ? config_.weight_decay : 0.0};
    kernels.adamw(stream, params.master(i), exp_avg(i), exp_avg_sq(i), params.published(i), grads.updated(i), scalars,
                  options);
  }
}

}  // namespace llmtrain
