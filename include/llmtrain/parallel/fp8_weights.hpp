// SPDX-License-Identifier: Apache-2.0
/// Fp8Weights: linear layers' weights as products in fp8 take them. Of weights that are whole on this rank all the time the
/// scale is found once, at the first use after an update, and with precision.keep_fp8 the copies are kept until the next.
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
  /// `fp8`: products are in fp8; else nothing is requested. `keep`: the copies.
  Fp8Weights(const StoreShape& shape, bool fp8, bool keep, MemoryPlan& plan);
  /// Views into `arena`; `params` must outlive this.
  void bind(const Arena& arena, const ParamStore& params);

  /// A weight that was acquired, with copies; those that are not kept are in memory of `frame`.
  Factor factor(Context& ctx, ScratchStack::Frame& frame, Tensor weight, SumsOf sums);

 private:
  struct Slots {
    int storage = 0;
    Slot fp8, fp8_transposed, scale;
  };
  struct Kept {
    Factor factor;             ///< without copies where these are not kept
    std::int64_t update = -1;  ///< of the weight that scale and copies are of
  };

  const StoreShape& shape_;
  std::vector<Slots> slots_;
  const ParamStore* params_ = nullptr;
  std::map<const void*, Kept> kept_;  ///< by the weight's address
};

}  // namespace llmtrain
