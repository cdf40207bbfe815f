// SPDX-License-Identifier: Apache-2.0
/// The part of a lease that comes and goes: whole flat arrays of its storages, one behind the other in a ring's memory.
#pragma once

#include "llmtrain/parallel/stores.hpp"

namespace llmtrain {

/// Tells which storages a store keeps whole, and so never has in a buffer.
using KeepsWhole = bool (StoreShape::*)(int storage) const;

/// Bytes of the first `count` storages of a lease in a buffer; by default of all.
inline std::int64_t lease_buffer_bytes(const StoreShape& shape, int lease, KeepsWhole keeps, DType dtype,
                                       std::size_t count = SIZE_MAX) {
  const std::vector<int>& storages = shape.storages_of(lease);
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < std::min(count, storages.size()); ++i) {
    if (!(shape.*keeps)(storages[i])) elements += shape.layout(storages[i]).padded;
  }
  return elements * size_of(dtype);
}

/// The flat array of the lease's i-th storage, which is not kept whole, in a buffer that begins at byte `begin` of `ring`.
inline Tensor in_lease_buffer(const StoreShape& shape, Tensor ring, std::int64_t begin, int lease, std::size_t i,
                              KeepsWhole keeps, DType dtype) {
  begin += lease_buffer_bytes(shape, lease, keeps, dtype, i);
  return Tensor::dense(static_cast<std::byte*>(ring.data) + begin, dtype,
                       {shape.layout(shape.storages_of(lease)[i]).padded});
}

}  // namespace llmtrain
