// SPDX-License-Identifier: Apache-2.0
/// Which row of the ZeRO table a storage has, and views of flat storage: whole, chunk, matrix.
#include <algorithm>

#include "llmtrain/parallel/stores.hpp"

namespace llmtrain {

StoreShape::StoreShape(const ParamTable& params, const StorePlace& where, const ParallelConfig& parallel,
                       const StoreTypes& store_types)
    : table(&params), place(where), policy(parallel), zero(where.shards == 1 ? 0 : parallel.zero), types(store_types) {
  for (const StorageSpec& storage : params.storages) {
    layouts.push_back(layout_of(storage, where.tensor_rank, where.tensor_size, where.shards));
  }
  whole_gradients.assign(layouts.size(), zero < 2);
  for (const LeaseSpec& lease : params.leases) {
    if (std::find(policy.whole_gradients.begin(), policy.whole_gradients.end(), lease.name) ==
        policy.whole_gradients.end()) {
      continue;
    }
    for (const int storage : lease.storages) whole_gradients[static_cast<std::size_t>(storage)] = true;
  }
}

bool StoreShape::keeps_whole_weights(int storage) const {
  return zero < 3 || layout(storage).numel() <= policy.persistence;
}

Tensor StoreShape::chunk(int storage, Tensor flat, int rank) const {
  const std::int64_t elements = layout(storage).chunk;
  return flat.flat(elements * rank, elements);
}

std::int64_t StoreShape::updated_begin(int storage) const {
  return zero == 0 ? 0 : layout(storage).chunk * place.chunk.shard;
}

Tensor StoreShape::shaped(int storage, Tensor flat) const {
  const Tensor used = flat.flat(0, layout(storage).numel());
  const bool vector = spec(storage).sections[0].shape.size() == 1;
  return vector ? used : used.reshaped({layout(storage).rows, layout(storage).cols});
}

}  // namespace llmtrain
