// SPDX-License-Identifier: Apache-2.0
/// Initial values of parameters: a function of (seed, section name, global element), so equal in every layout.
#pragma once

#include <cstdint>

#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/params/ownership.hpp"

namespace llmtrain {

/// Writes the initial values of elements [begin, begin + destination.numel()) of the storage's flat local array;
/// padding becomes zero.
void initialise(Kernels& kernels, Stream stream, Tensor destination, const StorageSpec& storage,
                const StorageLayout& layout, std::int64_t begin, std::uint64_t seed);

}  // namespace llmtrain
