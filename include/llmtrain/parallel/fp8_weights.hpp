// SPDX-License-Identifier: Apache-2.0
/// Fp8Weights: copies of linear layers' weights for products in fp8, made at their first use after an update and kept
/// until the next (precision.keep_fp8). Only weights that are whole on this rank all the time have them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "llmtrain/memory/arena.hpp"
#include "llmtrain/memory/plan.hpp"
#include "llmtrain/parallel/linear.hpp"
#include "llmtrain/parallel/stores.hpp"

namespace llmtrain {

class Fp8Weights {
 public:
  /// None are kept unless `keep`.
  Fp8Weights(const StoreShape& shape, bool keep, MemoryPlan& plan);
  /// Views into `arena`; `params` must outlive this.
  void bind(const Arena& arena, const ParamStore& params);

  /// A weight that was acquired, with both copies; null where none are kept.
  const Factor* of(Context& ctx, Tensor weight);

 private:
  struct Slots {
    int storage = 0;
    Slot fp8, fp8_transposed, scale;
  };
  struct Copies {
    Factor factor;
    std::int64_t update = -1;  ///< of the weight that they were made from
  };

  const StoreShape& shape_;
  std::vector<Slots> slots_;
  const ParamStore* params_ = nullptr;
  std::map<const void*, Copies> copies_;  ///< by the weight's address
};

}  // namespace llmtrain
