// SPDX-License-Identifier: Apache-2.0
/// Views of flat storage: whole, chunk, matrix.
#include "llmtrain/parallel/stores.hpp"

namespace llmtrain {

StoreShape::StoreShape(const ParamTable& params, const StorePlace& where, int zero_level, DType data_type,
                       DType stats_type)
    : table(&params), place(where), zero(where.shards == 1 ? 0 : zero_level), data(data_type), stats(stats_type) {
  for (const StorageSpec& storage : params.storages) {
    layouts.push_back(layout_of(storage, where.tensor_rank, where.tensor_size, where.shards));
  }
}

Tensor StoreShape::own_chunk(int storage, Tensor flat) const {
  const std::int64_t chunk = layout(storage).chunk;
  return flat.flat(chunk * place.chunk.shard, chunk);
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
