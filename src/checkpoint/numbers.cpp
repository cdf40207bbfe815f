// SPDX-License-Identifier: Apache-2.0
/// One loop for each pair of types, and transposition in tiles that stay in the cache.
#include "numbers.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "llmtrain/base/bf16.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/fp16.hpp"

namespace llmtrain {

namespace {

constexpr std::int64_t tile = 32;

/// What a number is computed with.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class From, class To>
std::int64_t convert(const From* in, To* out, std::int64_t count) {
  const auto is_lost = [&](std::int64_t i) {
    return std::isfinite(static_cast<Wide<From>>(in[i])) && !std::isfinite(static_cast<Wide<To>>(out[i]));
  };
  bool any_lost = false;
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<To>(static_cast<Wide<From>>(in[i]));
    any_lost |= is_lost(i);
  }
  std::int64_t first = any_lost ? 0 : -1;
  while (any_lost && !is_lost(first)) ++first;
  return first;
}

/// Calls `use` with a number of the type.
template <class Use>
auto with_type(DType dtype, Use use) {
  switch (dtype) {
    case DType::fp64: return use(double{});
    case DType::fp32: return use(float{});
    case DType::bf16: return use(Bf16{});
    case DType::fp16: return use(Fp16{});
    default: break;
  }
  fail(ExitCode::internal, "{} is no type of weights", name_of(dtype));
}

template <class T>
void transpose(std::int64_t rows, std::int64_t cols, const T* in, std::int64_t in_stride, T* out,
               std::int64_t out_stride) {
  for (std::int64_t row = 0; row < rows; row += tile) {
    for (std::int64_t col = 0; col < cols; col += tile) {
      const std::int64_t row_end = std::min(rows, row + tile), col_end = std::min(cols, col + tile);
      for (std::int64_t c = col; c < col_end; ++c) {
        for (std::int64_t r = row; r < row_end; ++r) out[c * out_stride + r] = in[r * in_stride + c];
      }
    }
  }
}

}  // namespace

std::int64_t convert_numbers(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out) {
  const std::int64_t count = static_cast<std::int64_t>(out.size()) / size_of(to);
  LLMTRAIN_CHECK(static_cast<std::int64_t>(in.size()) == count * size_of(from));
  return with_type(from, [&](auto source) {
    return with_type(to, [&](auto target) {
      return convert(reinterpret_cast<const decltype(source)*>(in.data()),
                     reinterpret_cast<decltype(target)*>(out.data()), count);
    });
  });
}

void copy_transposed(std::int64_t width, std::int64_t rows, std::int64_t cols, const std::byte* in,
                     std::int64_t in_stride, std::byte* out, std::int64_t out_stride) {
  const auto as = [&](auto element) {
    using T = decltype(element);
    transpose(rows, cols, reinterpret_cast<const T*>(in), in_stride, reinterpret_cast<T*>(out), out_stride);
  };
  switch (width) {
    case 2: return as(std::uint16_t{});
    case 4: return as(std::uint32_t{});
    case 8: return as(std::uint64_t{});
    default: fail(ExitCode::internal, "no transposition of {} bytes", width);
  }
}

}  // namespace llmtrain
