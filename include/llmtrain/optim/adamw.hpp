// SPDX-License-Identifier: Apache-2.0
/// AdamW over the ranges that this rank updates; its moments live beside the masters.
#pragma once

#include <vector>

#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/config/deck.hpp"
#include "llmtrain/parallel/stores.hpp"

namespace llmtrain {

class AdamW {
 public:
  AdamW(const OptimizerConfig& config, const StoreShape& shape, MemoryPlan& plan);
  void bind(const Arena& arena);

  /// One update of every storage from its reduced gradient; `scalars` is StepScalars on the device.
  void update(Kernels& kernels, Stream stream, ParamStore& params, const GradStore& grads, Tensor scalars);

  /// First and second moments of a storage, flat, like ParamStore::master().
  Tensor exp_avg(int storage) const { return first_[static_cast<std::size_t>(storage)]; }
  Tensor exp_avg_sq(int storage) const { return second_[static_cast<std::size_t>(storage)]; }

 private:
  const OptimizerConfig& config_;
  const StoreShape& shape_;
  std::vector<Slot> first_slots_;
  std::vector<Slot> second_slots_;
  std::vector<Tensor> first_;
  std::vector<Tensor> second_;
};

}  // namespace llmtrain
