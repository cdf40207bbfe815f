// SPDX-License-Identifier: Apache-2.0
/// What attention forward and backward share: the block of keys, typed views of heads, and the rule which keys a query
/// sees.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numbers>
#include <utility>

#include "common/element.hpp"
#include "cpu/attention.hpp"
#include "cpu/tile.hpp"

namespace llmtrain::attention {

inline constexpr std::int64_t key_block = 96;  // a multiple of every panel width

/// Throws for what the kernels cannot do.
inline void check_attention(const AttentionOptions& options, DType dtype) {
  require(dtype == DType::bf16 || dtype == DType::fp32 || dtype == DType::fp64, ExitCode::configuration,
          "attention on the CPU takes bf16, fp32 or fp64, not {}: set precision.compute to one of these",
          name_of(dtype));
  require(options.shape.head_dim <= cpu_max_head_dim, ExitCode::configuration,
          "model.head_dim is {}, above {}, the most that attention on the CPU can do", options.shape.head_dim,
          cpu_max_head_dim);
}

/// Whether a call is worth a team of threads, whose start costs microseconds.
inline bool is_large(const AttentionShape& shape) {
  return shape.batch * shape.heads * shape.sequence * shape.sequence * shape.head_dim >= (1 << 18);
}

/// One head of one sequence: rows [sequence, head_dim], `ld` elements apart. Data of type T are packed into blocks of
/// their stats type, in which everything is computed.
template <class T>
struct Head {
  T* data = nullptr;
  std::int64_t ld = 0;
  T* row(std::int64_t i) const { return data + i * ld; }
};

template <class T>
Head<T> head_of(const Tensor& x, const AttentionShape& shape, std::int64_t batch, std::int64_t head) {
  return {x.ptr<T>() + batch * shape.sequence * x.leading + head * shape.head_dim, x.leading};
}

/// Row of lse or delta [heads, tokens] for one sequence.
template <class T>
T* stats_of(const Tensor& x, const AttentionShape& shape, std::int64_t batch, std::int64_t head) {
  return x.ptr<T>() + head * x.leading + batch * shape.sequence;
}

/// Query i sees the keys first(i) .. i of its sequence.
struct Visible {
  const std::int32_t* starts = nullptr;  // of this sequence, or null
  std::int64_t stride = 1;
  std::int64_t window = 0;

  std::int64_t first(std::int64_t i) const {
    std::int64_t key = window > 0 ? std::max<std::int64_t>(0, i - window + 1) : 0;
    if (starts != nullptr) key = std::max<std::int64_t>(key, starts[i * stride]);
    return std::min(key, i);
  }

  /// Smallest and largest first key of queries [begin, end).
  std::pair<std::int64_t, std::int64_t> first_range(std::int64_t begin, std::int64_t end) const {
    std::int64_t low = std::numeric_limits<std::int64_t>::max(), high = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      low = std::min(low, first(i));
      high = std::max(high, first(i));
    }
    return {low, high};
  }
};

inline Visible visible_of(const Tensor& starts, const AttentionOptions& options, std::int64_t batch) {
  if (!starts) return {nullptr, 1, options.window};
  return {starts.ptr<std::int32_t>() + batch * options.shape.sequence * starts.leading, starts.leading, options.window};
}

/// How a raw product q.k becomes an exponent of 2: with log2 e folded in, softmax needs only 2^x.
/// No cap: x = product * factor. Cap: x = cap * tanh(product * factor).
template <class T>
struct ScoreRule {
  T factor = 1;
  T cap = 0;
};

template <class T>
ScoreRule<T> score_rule(const AttentionOptions& options) {
  constexpr double log2e = std::numbers::log2e;
  if (options.soft_cap == 0) return {static_cast<T>(options.scale * log2e), 0};
  return {static_cast<T>(options.scale / options.soft_cap), static_cast<T>(options.soft_cap * log2e)};
}

/// to[d, lane] = from row `lane`, element d, times factor; lanes at and beyond `rows` are 0.
template <class S, class T>
void pack_transposed(S* to, Head<T> from, std::int64_t first, std::int64_t rows, std::int64_t head_dim, S factor) {
  constexpr std::int64_t width = simd::panel<S>;
  for (std::int64_t lane = 0; lane < width; ++lane) {
    if (lane < rows) {
      const T* row = from.row(first + lane);
      for (std::int64_t d = 0; d < head_dim; ++d) to[d * width + lane] = load(row[d]) * factor;
    } else {
      for (std::int64_t d = 0; d < head_dim; ++d) to[d * width + lane] = 0;
    }
  }
}

/// Copies rows into a dense [rows, ld] buffer, columns beyond head_dim zero: rows of packed tensors often lie a power
/// of two apart, where they would evict each other from the cache.
template <class S, class T>
void pack_rows(S* to, std::int64_t ld, Head<T> from, std::int64_t first, std::int64_t rows, std::int64_t head_dim) {
  for (std::int64_t i = 0; i < rows; ++i, to += ld) {
    const T* row = from.row(first + i);
#pragma omp simd
    for (std::int64_t d = 0; d < head_dim; ++d) to[d] = load(row[d]);
    std::fill(to + head_dim, to + ld, S(0));
  }
}

/// The way back: one row of results, rounded once.
template <class S, class T>
void unpack_row(T* to, const S* from, std::int64_t head_dim) {
#pragma omp simd
  for (std::int64_t d = 0; d < head_dim; ++d) store(to[d], from[d]);
}

}  // namespace llmtrain::attention
