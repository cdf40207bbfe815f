// SPDX-License-Identifier: Apache-2.0
/// Sums and maxima in rank order, a cache block at a time, blocks dealt out to the OpenMP threads.
#include "rank_order.hpp"

#include <algorithm>
#include <array>

#include "llmtrain/base/bf16.hpp"

namespace llmtrain {

namespace {

template <class T>
struct Arithmetic {
  using Wide = T;
  static T widen(T value) { return value; }
  static T narrow(T value) { return value; }
};

template <>
struct Arithmetic<Bf16> {
  using Wide = float;
  static float widen(Bf16 value) { return value; }
  static Bf16 narrow(float value) { return Bf16(value); }
};

template <class T>
struct Sum {
  static T combine(T a, T b) { return a + b; }
};

template <class T>
struct Max {
  static T combine(T a, T b) { return b > a || b != b ? b : a; }
};

template <class T, template <class> class Op>
void reduce(T* destination, std::span<const void* const> contributions, std::int64_t count) {
  using Wide = typename Arithmetic<T>::Wide;
  constexpr std::int64_t block = 2048;  // of accumulators: stays in the first-level cache
  const std::int64_t blocks = (count + block - 1) / block;
#pragma omp parallel for schedule(static) if (blocks >= 16)
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t begin = b * block;
    const std::int64_t length = std::min(block, count - begin);
    std::array<Wide, block> total;
    const T* first = static_cast<const T*>(contributions[0]) + begin;
    for (std::int64_t i = 0; i < length; ++i) total[static_cast<std::size_t>(i)] = Arithmetic<T>::widen(first[i]);
    for (std::size_t p = 1; p < contributions.size(); ++p) {
      const T* next = static_cast<const T*>(contributions[p]) + begin;
      for (std::int64_t i = 0; i < length; ++i) {
        Wide& sum = total[static_cast<std::size_t>(i)];
        sum = Op<Wide>::combine(sum, Arithmetic<T>::widen(next[i]));
      }
    }
    T* out = destination + begin;
    for (std::int64_t i = 0; i < length; ++i) out[i] = Arithmetic<T>::narrow(total[static_cast<std::size_t>(i)]);
  }
}

template <class T>
void reduce(void* destination, std::span<const void* const> contributions, std::int64_t count, ReduceOp op) {
  if (op == ReduceOp::sum) {
    reduce<T, Sum>(static_cast<T*>(destination), contributions, count);
  } else {
    reduce<T, Max>(static_cast<T*>(destination), contributions, count);
  }
}

}  // namespace

bool can_reduce(DType dtype, ReduceOp) {
  return dtype == DType::fp64 || dtype == DType::fp32 || dtype == DType::bf16 || dtype == DType::int64 ||
         dtype == DType::int32;
}

void reduce_in_rank_order(void* destination, std::span<const void* const> contributions, std::int64_t count,
                          DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::fp64: return reduce<double>(destination, contributions, count, op);
    case DType::fp32: return reduce<float>(destination, contributions, count, op);
    case DType::bf16: return reduce<Bf16>(destination, contributions, count, op);
    case DType::int64: return reduce<std::int64_t>(destination, contributions, count, op);
    case DType::int32: return reduce<std::int32_t>(destination, contributions, count, op);
    default: LLMTRAIN_CHECK(can_reduce(dtype, op));
  }
}

}  // namespace llmtrain
