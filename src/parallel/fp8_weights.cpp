// SPDX-License-Identifier: Apache-2.0
/// Which weights have copies, and when they are made.
#include "llmtrain/parallel/fp8_weights.hpp"

#include <fmt/format.h>

namespace llmtrain {

Fp8Weights::Fp8Weights(const StoreShape& shape, bool keep, MemoryPlan& plan) : shape_(shape) {
  if (!keep) return;
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
      slots_.push_back({storage, request("fp8", DType::fp8_e4m3, {layout.rows, layout.cols}),
                        request("fp8 transposed", DType::fp8_e4m3, {layout.cols, layout.rows}),
                        request("fp8 scale", DType::fp32, {1})});
    }
  }
}

void Fp8Weights::bind(const Arena& arena, const ParamStore& params) {
  params_ = &params;
  for (const Slots& slots : slots_) {
    const Tensor weight = shape_.shaped(slots.storage, params.whole(slots.storage));
    copies_.emplace(weight.data,
                    Copies{Factor(weight, arena[slots.fp8], arena[slots.fp8_transposed], arena[slots.scale])});
  }
}

const Factor* Fp8Weights::of(Context& ctx, Tensor weight) {
  const auto found = copies_.find(weight.data);
  if (found == copies_.end()) return nullptr;
  Copies& copies = found->second;
  if (copies.update != params_->updates()) {
    copies.factor.quantize(ctx);
    copies.update = params_->updates();
  }
  return &copies.factor;
}

}  // namespace llmtrain
