// SPDX-License-Identifier: Apache-2.0
/// Views of flat storage: whole, chunk, matrix.
#include "llmtrain/parallel/stores.hpp"

namespace llmtrain {

StoreShape::StoreShape(const ParamTable& params, int tensor_rank, int tensor_size, int zero_level, int shard_index,
                       int shard_count, DType data_type, DType stats_type)
    : table(&params),
      zero(zero_level),
      shard_rank(shard_index),
      shards(shard_count),
      data(data_type),
      stats(stats_type) {
  for (const StorageSpec& storage : params.storages) {
    layouts.push_back(layout_of(storage, tensor_rank, tensor_size, shard_count));
  }
}

Tensor StoreShape::own_chunk(int storage, Tensor flat) const {
  const std::int64_t chunk = layouts[static_cast<std::size_t>(storage)].chunk;
  return flat.flat(chunk * shard_rank, chunk);
}

std::int64_t StoreShape::updated_begin(int storage) const {
  return zero == 0 ? 0 : layouts[static_cast<std::size_t>(storage)].chunk * shard_rank;
}

Tensor StoreShape::shaped(int storage, Tensor flat) const {
  const StorageLayout& layout = layouts[static_cast<std::size_t>(storage)];
  const Tensor used = flat.flat(0, layout.numel());
  const bool vector = table->storages[static_cast<std::size_t>(storage)].sections[0].shape.size() == 1;
  return vector ? used : used.reshaped({layout.rows, layout.cols});
}

}  // namespace llmtrain
