// SPDX-License-Identifier: Apache-2.0
/// The part of a lease that comes and goes: whole flat arrays of its storages, one behind the other in a ring's memory.
#pragma once

#include "llmtrain/parallel/stores.hpp"

namespace llmtrain {

/// Bytes that the first `count` storages of a lease take in a buffer, by default all; `is_in(storage)` tells which do.
template <class IsIn>
std::int64_t lease_buffer_bytes(const StoreShape& shape, int lease, DType dtype, IsIn&& is_in,
                                std::size_t count = SIZE_MAX) {
  const std::span storages(shape.storages_of(lease));
  std::int64_t elements = 0;
  for (const int storage : storages.first(std::min(count, storages.size()))) {
    if (is_in(storage)) elements += shape.layout(storage).padded;
  }
  return elements * size_of(dtype);
}

/// The flat array of the lease's i-th storage, which is in the buffer that begins at byte `begin` of `ring`.
template <class IsIn>
Tensor in_lease_buffer(const StoreShape& shape, Tensor ring, std::int64_t begin, int lease, std::size_t i, DType dtype,
                       IsIn&& is_in) {
  begin += lease_buffer_bytes(shape, lease, dtype, is_in, i);
  return Tensor::dense(static_cast<std::byte*>(ring.data) + begin, dtype,
                       {shape.layout(shape.storages_of(lease)[i]).padded});
}

}  // namespace llmtrain
