// SPDX-License-Identifier: Apache-2.0
/// Attention forward on the CPU. Vector lanes run over queries, so a softmax over keys needs no sum across lanes.
#include <cmath>
#include <memory>
#include <numbers>

#include "cpu/attention_blocks.hpp"

namespace llmtrain {
namespace {

using namespace attention;
using simd::Vector;

// Each block of queries packs all the keys before it anew, so it is a long one.
constexpr std::int64_t query_block = 128;

// Scores below `floor` count as masked; `masked` is lower still, so that a block without a visible key adds 2^-inf = 0.
template <class T>
constexpr T floor_score = static_cast<T>(-1e30);
template <class T>
constexpr T masked_score = std::numeric_limits<T>::lowest();

/// Panels of `width` queries; [d, lane] and [key, lane] matrices.
template <class T>
struct alignas(64) Buffers {
  static constexpr std::int64_t width = simd::panel<T>;
  T q[query_block * cpu_max_head_dim];    // [panel, head_dim, width], times the score factor
  T out[query_block * cpu_max_head_dim];  // [panel, head_dim, width], not yet divided by the sums
  T k[key_block * cpu_max_head_dim];      // [key, head_dim]
  T v[key_block * cpu_max_head_dim];
  T p[key_block * width];  // [key, lane]: scores, then probabilities
  T maximum[query_block];  // of the exponents so far
  T sum[query_block];      // of 2^(exponent - maximum)
  T first[query_block];    // first key that the query sees
  bool started[query_block / width];
};

/// Data are of type T; buffers and statistics of its stats type, called S below.
template <class T>
struct QueryBlock {
  Head<T> q, k, v, out;
  StatsType<T>* lse;
  Visible visible;
  ScoreRule<StatsType<T>> rule;
  std::int64_t head_dim;
  std::int64_t begin, count;  // queries of the sequence
};

/// Applies soft-cap and mask to `keys` rows of exponents beginning at key `j0`; returns the maximum with `so_far`.
template <class T>
Vector<T> finish_scores(T* p, std::int64_t keys, T j0, Vector<T> first, Vector<T> last, T cap, bool mask,
                        Vector<T> so_far) {
  for (std::int64_t j = 0; j < keys; ++j, p += simd::panel<T>) {
    Vector<T> x = simd::load(p);
    if (cap != 0) x = cap * simd::tanh<T>(x);
    if (mask) {
      const Vector<T> key = simd::splat(j0 + static_cast<T>(j));
      x = key < first ? simd::splat(masked_score<T>) : x;
      x = key > last ? simd::splat(masked_score<T>) : x;
    }
    if (mask || cap != 0) simd::store(p, x);
    so_far = simd::max<T>(so_far, x);
  }
  return so_far;
}

/// One panel of queries against `keys` keys from j0 on: scores, online softmax, out += P V.
template <class T>
void attend(Buffers<StatsType<T>>& s, const QueryBlock<T>& block, std::int64_t index, std::int64_t j0,
            std::int64_t keys, bool mask) {
  using S = StatsType<T>;
  constexpr std::int64_t width = simd::panel<S>;
  const std::int64_t dim = block.head_dim;
  S* out = s.out + index * dim * width;
  simd::multiply_panel<S, simd::Left::rows, 2>({s.p, width, s.k, dim, s.q + index * dim * width, width, dim}, keys,
                                               false);
  for (std::int64_t half = 0; half < width; half += simd::lanes<S>) {
    const std::int64_t at = index * width + half;
    Vector<S> last;
    for (int lane = 0; lane < simd::lanes<S>; ++lane) last[lane] = static_cast<S>(block.begin + at + lane);
    const Vector<S> old = simd::load(s.maximum + at);
    const Vector<S> maximum = finish_scores<S>(s.p + half, keys, static_cast<S>(j0), simd::load(s.first + at), last,
                                               block.rule.cap, mask, old);
    Vector<S> sum{};
    for (std::int64_t j = 0; j < keys; ++j) {
      S* p = s.p + j * width + half;
      const Vector<S> e = simd::exp2<S>(simd::load(p) - maximum);
      simd::store(p, e);
      sum += e;
    }
    const Vector<S> shrink = simd::exp2<S>(old - maximum);
    simd::store(s.maximum + at, maximum);
    simd::store(s.sum + at, simd::load(s.sum + at) * shrink + sum);
    if (s.started[index])
      for (std::int64_t d = 0; d < dim; ++d)
        simd::store(out + d * width + half, simd::load(out + d * width + half) * shrink);
  }
  simd::multiply_panel<S, simd::Left::columns, 2>({out, width, s.v, dim, s.p, width, keys}, dim, s.started[index]);
  s.started[index] = true;
}

template <class T>
void start_block(Buffers<StatsType<T>>& s, const QueryBlock<T>& block) {
  using S = StatsType<T>;
  constexpr std::int64_t width = simd::panel<StatsType<T>>;
  std::fill(std::begin(s.maximum), std::end(s.maximum), floor_score<S>);
  std::fill(std::begin(s.sum), std::end(s.sum), S(0));
  std::fill(std::begin(s.started), std::end(s.started), false);
  for (std::int64_t i = 0; i < query_block; ++i)  // lanes beyond the sequence repeat its last query's range
    s.first[i] = static_cast<S>(block.visible.first(block.begin + std::min(i, block.count - 1)));
  for (std::int64_t i = 0; i < block.count; i += width)
    pack_transposed(s.q + i * block.head_dim, block.q, block.begin + i, std::min(width, block.count - i),
                    block.head_dim, block.rule.factor);
}

template <class T>
void finish_block(Buffers<StatsType<T>>& s, const QueryBlock<T>& block) {
  using S = StatsType<T>;
  constexpr std::int64_t width = simd::panel<StatsType<T>>;
  for (std::int64_t i = 0; i < block.count; ++i) {
    const S* from = s.out + (i / width) * block.head_dim * width + i % width;
    T* to = block.out.row(block.begin + i);
    const S scale = 1 / s.sum[i];
    for (std::int64_t d = 0; d < block.head_dim; ++d) store(to[d], from[d * width] * scale);
    block.lse[block.begin + i] = (s.maximum[i] + std::log2(s.sum[i])) * std::numbers::ln2_v<S>;
  }
}

template <class T>
void attend_block(Buffers<StatsType<T>>& s, const QueryBlock<T>& block) {
  constexpr std::int64_t width = simd::panel<StatsType<T>>;
  start_block(s, block);
  const std::int64_t end = block.begin + block.count;
  const std::int64_t first = block.visible.first_range(block.begin, end).first;
  for (std::int64_t j0 = first / key_block * key_block; j0 < end; j0 += key_block) {
    const std::int64_t count = std::min(key_block, end - j0);
    pack_rows(s.k, block.head_dim, block.k, j0, count, block.head_dim);
    pack_rows(s.v, block.head_dim, block.v, j0, count, block.head_dim);
    for (std::int64_t i = block.begin; i < end; i += width) {
      const std::int64_t panel_end = std::min(i + width, end);
      const std::int64_t keys = std::min(count, panel_end - j0);
      const auto [low, high] = block.visible.first_range(i, panel_end);
      if (keys <= 0 || j0 + keys <= low) continue;
      const bool mask = j0 + keys - 1 > i || j0 < high;
      attend(s, block, (i - block.begin) / width, j0, keys, mask);
    }
  }
  finish_block(s, block);
}

template <class T>
void forward(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
             const Tensor& starts, const AttentionOptions& options) {
  const AttentionShape& shape = options.shape;
  const auto rule = score_rule<StatsType<T>>(options);
  const std::int64_t blocks = (shape.sequence + query_block - 1) / query_block;
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::int64_t tasks = shape.batch * shape.heads * blocks;
#pragma omp parallel for schedule(dynamic) if (is_large(shape))
  for (std::int64_t task = 0; task < tasks; ++task) {
    thread_local const auto buffers = std::make_unique<Buffers<StatsType<T>>>();
    const std::int64_t begin = (blocks - 1 - task % blocks) * query_block;  // the long ones first
    const std::int64_t head = task / blocks % shape.heads;
    const std::int64_t batch = task / blocks / shape.heads;
    attend_block<T>(*buffers, {head_of<T>(q, shape, batch, head), head_of<T>(k, shape, batch, head / group),
                               head_of<T>(v, shape, batch, head / group), head_of<T>(out, shape, batch, head),
                               stats_of<StatsType<T>>(lse, shape, batch, head), visible_of(starts, options, batch),
                               rule, shape.head_dim, begin, std::min(query_block, shape.sequence - begin)});
  }
}

}  // namespace

void cpu_attention_forward(Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor starts,
                           const AttentionOptions& options) {
  check_attention(options, q.dtype);
  if (q.dtype == DType::bf16) return forward<Bf16>(out, lse, q, k, v, starts, options);
  if (q.dtype == DType::fp32) return forward<float>(out, lse, q, k, v, starts, options);
  forward<double>(out, lse, q, k, v, starts, options);
}

}  // namespace llmtrain
