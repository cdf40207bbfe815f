// SPDX-License-Identifier: Apache-2.0
/// What the CUDA kernels share: dispatch on the element type, views of rows with 16-byte accesses, the grid of an
/// element-by-element operation, and sums over warps and blocks in a fixed order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "common/dispatch.hpp"
#include "cuda/streams.hpp"
#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

inline constexpr int warp = 32;
inline constexpr int block_threads = 256;
inline constexpr int packs_ahead = 4;  ///< that a thread has on their way at a time where it reads many in turn
inline constexpr unsigned all_lanes = 0xffffffffu;

/// Whether a kernel runs as it was compiled for sm_90 or newer: what it does only there, then happens.
template <class... Parameters>
bool runs_as_sm_90(void (*kernel)(Parameters...)) {
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  return attributes.ptxVersion >= 90;
}

/// Elements of type T in one 16-byte access.
template <class T>
inline constexpr int full_width = 16 / static_cast<int>(sizeof(T));

/// `width` elements as they lie in memory: one access, or two where they are wider than 16 bytes.
template <class T, int width>
struct alignas(sizeof(T) * width < 16 ? sizeof(T) * width : 16) Pack {
  T at[width];
};

template <int width, class T>
__device__ __forceinline__ Pack<T, width> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, width>*>(from);
}
template <class T, int width>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, width>& pack) {
  *reinterpret_cast<Pack<T, width>*>(to) = pack;
}

/// `width` elements in the type they are computed in.
template <class S, int width>
struct Values {
  S at[width];
};

template <class T, int width>
__device__ __forceinline__ Values<StatsType<T>, width> widen(const Pack<T, width>& pack) {
  Values<StatsType<T>, width> values;
  if constexpr (std::is_same_v<T, Bf16> && width % 2 == 0) {  // a word at a time: one instruction an element
    const auto words = bits_as<Pack<std::uint32_t, width / 2>>(pack);
#pragma unroll
    for (int i = 0; i < width / 2; ++i) {
      values.at[2 * i] = bits_as<float>(words.at[i] << 16);
      values.at[2 * i + 1] = bits_as<float>(words.at[i] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < width; ++i) values.at[i] = load(pack.at[i]);
  }
  return values;
}

/// 16 bytes of a row as words: elements of a Pack would be taken apart, and so waited for, as soon as they are loaded.
template <class T>
__device__ __forceinline__ Values<StatsType<T>, full_width<T>> widen_words(const uint4& words) {
  return widen(bits_as<Pack<T, full_width<T>>>(words));
}

template <class T, class S, int width>
__device__ __forceinline__ Pack<T, width> narrow(const Values<S, width>& values) {
  Pack<T, width> pack;
#pragma unroll
  for (int i = 0; i < width; ++i) store(pack.at[i], values.at[i]);
  return pack;
}

/// A [rows, cols] tensor with a typed pointer; null for an absent tensor.
template <class T>
struct Matrix {
  explicit Matrix(const Tensor& t) : data(t ? t.ptr<T>() : nullptr), leading(t.leading) {}
  __device__ __forceinline__ T* at(std::int64_t row, std::int64_t col) const { return data + row * leading + col; }
  template <int width>
  __device__ __forceinline__ Values<StatsType<T>, width> values(std::int64_t row, std::int64_t col) const {
    return widen(load_pack<width>(at(row, col)));
  }
  template <int width>
  __device__ __forceinline__ void put(std::int64_t row, std::int64_t col,
                                      const Values<StatsType<T>, width>& values) const {
    store_pack(at(row, col), narrow<T>(values));
  }
  __host__ __device__ __forceinline__ explicit operator bool() const { return data != nullptr; }

  T* data;
  std::int64_t leading;
};

/// Whether all tensors can be accessed `width` elements at a time, at multiples of `width` in each row.
inline bool is_packed(std::initializer_list<Tensor> tensors, int width) {
  return std::all_of(tensors.begin(), tensors.end(), [width](const Tensor& t) {
    if (!t) return true;
    const std::int64_t access = std::min<std::int64_t>(16, width * size_of(t.dtype));
    return reinterpret_cast<std::uintptr_t>(t.data) % static_cast<std::uintptr_t>(access) == 0 &&
           t.cols() % width == 0 && (t.rows() <= 1 || t.leading % width == 0);
  });
}

/// Blocks of threads over [rows, packs]: x runs over the packs of a row, y over rows.
struct Grid {
  Grid(std::int64_t rows, std::int64_t packs) {
    int x = warp;
    while (x < block_threads && x < packs) x *= 2;
    const int y = block_threads / x;
    threads = dim3(static_cast<unsigned>(x), static_cast<unsigned>(y));
    blocks = dim3(static_cast<unsigned>(std::min<std::int64_t>((packs + x - 1) / x, 1 << 30)),
                  static_cast<unsigned>(std::min<std::int64_t>((rows + y - 1) / y, 65535)));
  }
  dim3 blocks, threads;
};

template <int width, class Body>
__global__ void __launch_bounds__(block_threads) for_packs(std::int64_t rows, std::int64_t packs, Body body) {
  for (std::int64_t r = blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += gridDim.y * blockDim.y) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; p < packs; p += step) {
      body(r, p * width);
    }
  }
}

template <int width, class Body>
void launch_packs(cudaStream_t stream, const char* operation, std::int64_t rows, std::int64_t cols, const Body& body) {
  if (rows == 0 || cols == 0) return;
  const Grid grid(rows, cols / width);
  for_packs<width><<<grid.blocks, grid.threads, 0, stream>>>(rows, cols / width, body);
  check_launch(operation);
}

/// Runs Body<width>{args...}(row, col) over all elements, `width` at a time; `full` is the width where the tensors allow
/// it. `tensors` [rows, cols] may be read as one row when all of them are dense.
template <template <int> class Body, int full, class... Args>
void for_elements(cudaStream_t stream, const char* operation, std::initializer_list<Tensor> tensors,
                  const Args&... args) {
  const Tensor& first = *tensors.begin();
  std::int64_t rows = first.rows(), cols = first.cols();
  if (std::all_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return !t || t.is_dense(); })) {
    cols = rows * cols;
    rows = 1;
  }
  const bool aligned = std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& t) {
    return is_packed({t && rows == 1 ? t.reshaped({1, t.numel()}) : t}, full);
  });
  if (aligned) return launch_packs<full>(stream, operation, rows, cols, Body<full>{args...});
  launch_packs<1>(stream, operation, rows, cols, Body<1>{args...});
}

/// As for_elements, on whole rows: a body may use its column, `by_column` are tensors [cols].
template <template <int> class Body, int full, class... Args>
void for_columns(cudaStream_t stream, const char* operation, std::initializer_list<Tensor> tensors,
                 std::initializer_list<Tensor> by_column, const Args&... args) {
  const Tensor& first = *tensors.begin();
  bool aligned = is_packed(tensors, full) && first.cols() % full == 0;
  for (const Tensor& t : by_column) aligned = aligned && (!t || is_packed({t.reshaped({1, t.numel()})}, full));
  if (aligned) return launch_packs<full>(stream, operation, first.rows(), first.cols(), Body<full>{args...});
  launch_packs<1>(stream, operation, first.rows(), first.cols(), Body<1>{args...});
}

template <class S>
__device__ __forceinline__ S warp_sum(S value) {
#pragma unroll
  for (int offset = warp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(all_lanes, value, offset);
  return value;
}

/// Waits for the `threads` threads of a group alone (threads of a block are grouped in order, at most 15 groups).
__device__ __forceinline__ void group_wait(int group, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "r"(threads) : "memory");
}

/// Replaces each of the values by its sum over the `group` threads around this one, the same in all of them. Every thread
/// of the group must come here; `shared` holds `count` elements a warp of the block and is free again on the next call.
template <int group, int count, class S>
__device__ __forceinline__ void group_sums(S (&values)[count], S* shared) {
#pragma unroll
  for (S& value : values) value = warp_sum(value);
  if constexpr (group > warp) {
    constexpr int warps = group / warp;
    const int mine = static_cast<int>(threadIdx.x) / warp;
    const auto wait = [] { group_wait(static_cast<int>(threadIdx.x) / group, group); };
    wait();
    if (threadIdx.x % warp == 0) {
#pragma unroll
      for (int i = 0; i < count; ++i) shared[mine * count + i] = values[i];
    }
    wait();
    const S* const first = shared + mine / warps * warps * count;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      values[i] = first[i];
#pragma unroll
      for (int w = 1; w < warps; ++w) values[i] += first[w * count + i];
    }
  }
}

/// The sum of one value.
template <int group, class S>
__device__ __forceinline__ S group_sum(S value, S* shared) {
  S values[1] = {value};
  group_sums<group>(values, shared);
  return values[0];
}

}  // namespace llmtrain
