// SPDX-License-Identifier: Apache-2.0
/// Of which weights what is kept, and when it is made.
#include "llmtrain/parallel/fp8_weights.hpp"

#include <fmt/format.h>

#include <utility>

namespace llmtrain {

Fp8Weights::Fp8Weights(const StoreShape& shape, bool fp8, bool keep, MemoryPlan& plan) : shape_(shape) {
  if (!fp8) return;
  for (const LeaseSpec& lease : shape.table->leases) {
    if (lease.name == "embedding" || lease.name == "head") continue;
    for (const int storage : lease.storages) {
      const StorageSpec& spec = shape.spec(storage);
      const bool matrix = spec.sections[0].shape.size() > 1;
      if (!matrix || !shape.keeps_whole_weights(storage)) continue;
      const StorageLayout& layout = shape.layout(storage);
      const auto request = [&](const char* what, DType dtype, std::initializer_list<std::int64_t> extents) {
        return plan.request(Segment::params, fmt::format("{} {}", spec.name, what), dtype, extents);
      };
      slots_.push_back({storage, keep ? request("fp8", fp8_of_values, {layout.rows, layout.cols}) : Slot{},
                        keep ? request("fp8 transposed", fp8_of_values, {layout.cols, layout.rows}) : Slot{},
                        request("fp8 scale", DType::fp32, {1})});
    }
  }
}

void Fp8Weights::bind(const Arena& arena, const ParamStore& params) {
  params_ = &params;
  for (const Slots& slots : slots_) {
    const Tensor weight = shape_.shaped(slots.storage, params.whole(slots.storage));
    const auto tensor = [&](Slot slot) { return slot ? arena[slot] : Tensor{}; };
    kept_.emplace(weight.data,
                  Kept{Factor(weight, tensor(slots.fp8), tensor(slots.fp8_transposed), arena[slots.scale])});
  }
}

Factor Fp8Weights::factor(Context& ctx, ScratchStack::Frame& frame, Tensor weight, SumsOf sums) {
  const auto found = kept_.find(weight.data);
  if (found == kept_.end()) return factor_of(ctx, frame, weight, fp8_of_values, sums);
  Kept& kept = found->second;
  const bool current = std::exchange(kept.update, params_->updates()) == params_->updates();
  if (!kept.factor.fp8) {
    return factor_of(ctx, frame, weight, fp8_of_values, sums, kept.factor.fp8.scale_tensor(),
                     current ? Scale::known : Scale::unknown);
  }
  if (!current) kept.factor.quantize(ctx);
  return kept.factor;
}

}  // namespace llmtrain
