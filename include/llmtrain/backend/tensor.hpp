// SPDX-License-Identifier: Apache-2.0
/// Tensor: a non-owning view passed by value. Storage belongs to the arena (memory/arena.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "llmtrain/base/dtype.hpp"
#include "llmtrain/base/error.hpp"

namespace llmtrain {

/// A view of up to four extents. `leading` is the number of elements between consecutive indices of extent 0; the
/// other extents are dense. A tensor of packed q has extents [tokens, heads, head_dim] and leading dimension
/// (heads + 2 kv_heads) * head_dim.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::fp32;
  int rank = 0;  ///< number of extents; 0 = no tensor (an absent optional argument)
  std::array<std::int64_t, 4> extent{};
  std::int64_t leading = 0;
  const float* scale = nullptr;  ///< of fp8 data, on the device: what its elements are multiplied by

  /// A dense view of `data`.
  static Tensor dense(void* data, DType dtype, std::span<const std::int64_t> shape);
  static Tensor dense(void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
    return dense(data, dtype, std::span(shape.begin(), shape.size()));
  }

  explicit operator bool() const { return rank > 0; }
  std::int64_t rows() const { return extent[0]; }
  std::int64_t cols() const;  ///< product of the extents after the first
  std::int64_t numel() const { return rank == 0 ? 0 : rows() * cols(); }
  std::int64_t bytes() const { return numel() * size_of(dtype); }  ///< of the elements, gaps not counted
  bool is_dense() const { return rows() <= 1 || leading == cols(); }

  /// Rows [begin, begin + count) of extent 0.
  Tensor rows_at(std::int64_t begin, std::int64_t count) const;
  /// Columns [begin, begin + count) of the tensor read as [rows, cols]; the result has two extents.
  Tensor cols_at(std::int64_t begin, std::int64_t count) const;
  /// The same elements with other inner extents: the product of `inner` must equal cols().
  Tensor with_inner(std::initializer_list<std::int64_t> inner) const;
  /// A dense tensor under another shape of equal numel.
  Tensor reshaped(std::initializer_list<std::int64_t> shape) const;
  /// Elements [begin, begin + count) of a dense tensor, as one extent.
  Tensor flat(std::int64_t begin, std::int64_t count) const;
  Tensor flat() const { return flat(0, numel()); }

  /// The scale of fp8 data, fp32 [1]; no tensor where there is none.
  Tensor scale_tensor() const;

  bool same_shape(const Tensor& other) const;
  std::string describe() const;  ///< e.g. "fp32 [128, 8, 64] ld 1024"

  /// Typed pointer; the element type must match.
  template <class T>
  T* ptr() const {
    LLMTRAIN_CHECK(dtype_of<T> == dtype);
    return static_cast<T*>(data);
  }
};

}  // namespace llmtrain
