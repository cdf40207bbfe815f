// SPDX-License-Identifier: Apache-2.0
/// Arrays of numbers from one type into another, and from one order into the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "llmtrain/base/dtype.hpp"

namespace llmtrain {

/// Converts as many numbers as `out` holds among fp64, fp32, bf16 and fp16, rounding to nearest once. Returns the index
/// of the first finite number that is too large for `to`, -1 if there is none.
std::int64_t convert_numbers(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out);

/// Copies the transpose of a row-major block [rows, cols] of elements of `width` bytes. `in_stride` and `out_stride` are
/// the elements between two rows of each array.
void copy_transposed(std::int64_t width, std::int64_t rows, std::int64_t cols, const std::byte* in,
                     std::int64_t in_stride, std::byte* out, std::int64_t out_stride);

}  // namespace llmtrain
