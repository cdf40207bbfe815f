// SPDX-License-Identifier: Apache-2.0
/// Attention backward on the CPU. Vector lanes run over keys; probabilities come back from the stored log-sum-exp.
/// Every gradient element is summed in ascending order of blocks, whichever of the two drivers below does it.
#include <omp.h>

#include <memory>
#include <numbers>
#include <type_traits>

#include "cpu/attention_blocks.hpp"

namespace llmtrain {
namespace {

using namespace attention;
using simd::Vector;

constexpr std::int64_t query_block = 64;

template <class T>
struct alignas(64) Buffers {
  static constexpr std::int64_t width = simd::panel<T>;
  T q[query_block * cpu_max_head_dim];  // [query, ld]
  T d_out[query_block * cpu_max_head_dim];
  T d_q[query_block * cpu_max_head_dim];
  T k_transposed[key_block * cpu_max_head_dim];  // [panel, head_dim, width]
  T v_transposed[key_block * cpu_max_head_dim];
  T k[key_block * cpu_max_head_dim];  // [key, ld]
  T d_k[key_block * cpu_max_head_dim];
  T d_v[key_block * cpu_max_head_dim];
  T p[query_block * key_block];    // [query, key_block]: scores, then probabilities
  T d_s[query_block * key_block];  // their gradients, then those of the raw products
};

/// What one pair of blocks adds to.
struct Wanted {
  bool d_q = false;
  bool d_kv = false;
};

/// Data are of type T; buffers and statistics of its stats type, called S below.
template <class T>
struct Call {
  Tensor d_q, d_k, d_v, d_out, q, k, v, lse, starts;
  Tensor delta;  // [heads, tokens]: sum over head_dim of d_out * out
  AttentionOptions options;
  ScoreRule<StatsType<T>> rule;
  std::int64_t dim, ld;  // head_dim, and the same rounded up to whole vectors

  std::int64_t group() const { return options.shape.heads / options.shape.kv_heads; }
};

/// One block of queries of one head against one block of keys.
template <class T>
struct Pair {
  std::int64_t batch, head, q0, queries, k0, keys;
  Visible visible;
};

template <class T>
void load_keys(Buffers<StatsType<T>>& s, const Call<T>& call, std::int64_t batch, std::int64_t kv_head, std::int64_t k0,
               std::int64_t keys) {
  using S = StatsType<T>;
  constexpr std::int64_t width = simd::panel<S>;
  const auto k = head_of<T>(call.k, call.options.shape, batch, kv_head);
  const auto v = head_of<T>(call.v, call.options.shape, batch, kv_head);
  for (std::int64_t j = 0; j < keys; j += width) {
    const std::int64_t rows = std::min(width, keys - j);
    pack_transposed(s.k_transposed + j * call.dim, k, k0 + j, rows, call.dim, S(1));
    pack_transposed(s.v_transposed + j * call.dim, v, k0 + j, rows, call.dim, S(1));
  }
  pack_rows(s.k, call.ld, k, k0, keys, call.dim);
}

/// Turns raw products and d_p of query row `i` (in its block) and key panel `j` into probabilities and d_s.
template <class T>
void finish_row(Buffers<StatsType<T>>& s, const Call<T>& call, const Pair<T>& pair, std::int64_t i, std::int64_t j,
                StatsType<T> log2_sum, StatsType<T> delta) {
  using S = StatsType<T>;
  const std::int64_t query = pair.q0 + i;
  const S first = static_cast<S>(pair.visible.first(query) - pair.k0 - j);
  const S last = static_cast<S>(query - pair.k0 - j);
  const bool mask = first > 0 || last < static_cast<S>(Buffers<S>::width - 1);
  const S scale = static_cast<S>(call.options.scale);
  for (std::int64_t half = 0; half < Buffers<S>::width; half += simd::lanes<S>) {
    S* p_at = s.p + i * key_block + j + half;
    S* d_at = s.d_s + i * key_block + j + half;
    Vector<S> x = simd::load(p_at) * call.rule.factor;
    Vector<S> slope = simd::splat(scale);
    if (call.rule.cap != 0) {
      const Vector<S> t = simd::tanh<S>(x);
      slope *= 1 - t * t;
      x = call.rule.cap * t;
    }
    Vector<S> p = simd::exp2<S>(x - log2_sum);
    if (mask) {
      Vector<S> key;
      for (int lane = 0; lane < simd::lanes<S>; ++lane) key[lane] = static_cast<S>(half + lane);
      p = key < first ? Vector<S>{} : p;
      p = key > last ? Vector<S>{} : p;
    }
    simd::store(p_at, p);
    simd::store(d_at, p * (simd::load(d_at) - delta) * slope);
  }
}

/// Probabilities and d_s of key panel `j`; rows before `from` see none of its keys and become 0.
template <class T>
void score_panel(Buffers<StatsType<T>>& s, const Call<T>& call, const Pair<T>& pair, std::int64_t from,
                 std::int64_t j) {
  using S = StatsType<T>;
  constexpr std::int64_t width = Buffers<S>::width;
  for (std::int64_t i = 0; i < from; ++i) {
    std::fill_n(s.p + i * key_block + j, width, S(0));
    std::fill_n(s.d_s + i * key_block + j, width, S(0));
  }
  const std::int64_t rows = pair.queries - from;
  const std::int64_t at = from * key_block + j;
  simd::multiply_panel<S, simd::Left::rows, 2>(
      {s.p + at, key_block, s.q + from * call.ld, call.ld, s.k_transposed + j * call.dim, width, call.dim}, rows,
      false);
  simd::multiply_panel<S, simd::Left::rows, 2>(
      {s.d_s + at, key_block, s.d_out + from * call.ld, call.ld, s.v_transposed + j * call.dim, width, call.dim}, rows,
      false);
  const S* lse = stats_of<S>(call.lse, call.options.shape, pair.batch, pair.head) + pair.q0;
  const S* delta = stats_of<S>(call.delta, call.options.shape, pair.batch, pair.head) + pair.q0;
  for (std::int64_t i = from; i < pair.queries; ++i)
    finish_row(s, call, pair, i, j, lse[i] * std::numbers::log2e_v<S>, delta[i]);
}

/// d_q (+)= d_s K for the queries of the pair. Sums of narrow data stay in the buffer from pair to pair: the blocks of
/// keys of one block of queries must follow each other.
template <class T>
void add_d_q(Buffers<StatsType<T>>& s, const Call<T>& call, const Pair<T>& pair, bool first_block) {
  using S = StatsType<T>;
  constexpr std::int64_t width = Buffers<S>::width;
  constexpr bool narrow = !std::is_same_v<S, T>;
  const auto d_q = head_of<T>(call.d_q, call.options.shape, pair.batch, pair.head);
  Head<S> sum{s.d_q, call.ld};
  bool in_place = false;
  if constexpr (!narrow) {
    in_place = call.dim == call.ld;  // else the last vector of a row would reach beyond the head
    if (in_place) sum = {d_q.row(pair.q0), d_q.ld};
  }
  if (!narrow && !in_place && !first_block) pack_rows(s.d_q, call.ld, d_q, pair.q0, pair.queries, call.dim);
  for (std::int64_t i = 0; i < pair.queries; i += width) {
    const std::int64_t rows = std::min(width, pair.queries - i);
    const std::int64_t seen = std::min(pair.keys, pair.q0 + i + rows - pair.k0);  // keys before the last query
    if (seen <= 0) continue;  // never in the first block, whose keys begin before all queries
    simd::multiply<S, simd::Left::rows>({sum.row(i), sum.ld, s.d_s + i * key_block, key_block, s.k, call.ld, seen},
                                        rows, call.ld, !first_block);
  }
  if (in_place) return;
  for (std::int64_t i = 0; i < pair.queries; ++i) unpack_row(d_q.row(pair.q0 + i), sum.row(i), call.dim);
}

template <class T>
void add_pair(Buffers<StatsType<T>>& s, const Call<T>& call, const Pair<T>& pair, Wanted wanted) {
  using S = StatsType<T>;
  constexpr std::int64_t width = Buffers<S>::width;
  const auto [low, high] = pair.visible.first_range(pair.q0, pair.q0 + pair.queries);
  if (low >= pair.k0 + pair.keys) return;
  const AttentionShape& shape = call.options.shape;
  pack_rows(s.q, call.ld, head_of<T>(call.q, shape, pair.batch, pair.head), pair.q0, pair.queries, call.dim);
  pack_rows(s.d_out, call.ld, head_of<T>(call.d_out, shape, pair.batch, pair.head), pair.q0, pair.queries, call.dim);
  for (std::int64_t j = 0; j < pair.keys; j += width) {
    const std::int64_t from = std::clamp<std::int64_t>(pair.k0 + j - pair.q0, 0, pair.queries);
    score_panel(s, call, pair, from, j);
    const std::int64_t rows = std::min(width, pair.keys - j);
    const std::int64_t at = from * key_block + j;
    if (!wanted.d_kv || from == pair.queries) continue;
    simd::multiply<S, simd::Left::columns>(
        {s.d_v + j * call.ld, call.ld, s.p + at, key_block, s.d_out + from * call.ld, call.ld, pair.queries - from},
        rows, call.ld, true);
    simd::multiply<S, simd::Left::columns>(
        {s.d_k + j * call.ld, call.ld, s.d_s + at, key_block, s.q + from * call.ld, call.ld, pair.queries - from}, rows,
        call.ld, true);
  }
  if (wanted.d_q) add_d_q(s, call, pair, pair.k0 <= low);
}

/// All pairs of one block of keys; overwrites its d_k and d_v.
template <class T>
void add_key_block(Buffers<StatsType<T>>& s, const Call<T>& call, std::int64_t batch, std::int64_t kv_head,
                   std::int64_t k0, Wanted wanted) {
  using S = StatsType<T>;
  const AttentionShape& shape = call.options.shape;
  const std::int64_t keys = std::min(key_block, shape.sequence - k0);
  load_keys(s, call, batch, kv_head, k0, keys);
  std::fill_n(s.d_k, keys * call.ld, S(0));
  std::fill_n(s.d_v, keys * call.ld, S(0));
  const Visible visible = visible_of(call.starts, call.options, batch);
  for (std::int64_t head = kv_head * call.group(); head < (kv_head + 1) * call.group(); ++head)
    for (std::int64_t q0 = k0 / query_block * query_block; q0 < shape.sequence; q0 += query_block)
      add_pair<T>(s, call, {batch, head, q0, std::min(query_block, shape.sequence - q0), k0, keys, visible}, wanted);
  const auto d_k = head_of<T>(call.d_k, shape, batch, kv_head);
  const auto d_v = head_of<T>(call.d_v, shape, batch, kv_head);
  for (std::int64_t j = 0; j < keys; ++j) {
    unpack_row(d_k.row(k0 + j), s.d_k + j * call.ld, call.dim);
    unpack_row(d_v.row(k0 + j), s.d_v + j * call.ld, call.dim);
  }
}

template <class T>
Buffers<T>& thread_buffers() {
  thread_local const auto buffers = std::make_unique<Buffers<T>>();
  return *buffers;
}

/// One task a sequence and kv head: five products a pair, but no more tasks than these.
template <class T>
void run_by_head(const Call<T>& call) {
  const AttentionShape& shape = call.options.shape;
#pragma omp parallel for schedule(dynamic) if (is_large(shape))
  for (std::int64_t task = 0; task < shape.batch * shape.kv_heads; ++task)
    for (std::int64_t k0 = 0; k0 < shape.sequence; k0 += key_block)
      add_key_block(thread_buffers<StatsType<T>>(), call, task / shape.kv_heads, task % shape.kv_heads, k0,
                    {true, true});
}

/// Two passes, over blocks of keys (d_k, d_v) and of queries (d_q): seven products a pair, many tasks.
template <class T>
void run_by_block(const Call<T>& call) {
  const AttentionShape& shape = call.options.shape;
  const std::int64_t key_blocks = (shape.sequence + key_block - 1) / key_block;
  const std::int64_t query_blocks = (shape.sequence + query_block - 1) / query_block;
#pragma omp parallel for schedule(dynamic) if (is_large(shape))
  for (std::int64_t task = 0; task < shape.batch * shape.kv_heads * key_blocks; ++task) {
    const std::int64_t lane = task / key_blocks;
    add_key_block(thread_buffers<StatsType<T>>(), call, lane / shape.kv_heads, lane % shape.kv_heads,
                  task % key_blocks * key_block, {false, true});
  }
#pragma omp parallel for schedule(dynamic) if (is_large(shape))
  for (std::int64_t task = 0; task < shape.batch * shape.heads * query_blocks; ++task) {
    Buffers<StatsType<T>>& s = thread_buffers<StatsType<T>>();
    const std::int64_t q0 = (query_blocks - 1 - task % query_blocks) * query_block;  // the long ones first
    const std::int64_t head = task / query_blocks % shape.heads;
    const std::int64_t batch = task / query_blocks / shape.heads;
    const std::int64_t queries = std::min(query_block, shape.sequence - q0);
    const Visible visible = visible_of(call.starts, call.options, batch);
    const std::int64_t low = visible.first_range(q0, q0 + queries).first;
    for (std::int64_t k0 = low / key_block * key_block; k0 < q0 + queries; k0 += key_block) {
      const std::int64_t keys = std::min(key_block, shape.sequence - k0);
      load_keys(s, call, batch, head / call.group(), k0, keys);
      add_pair<T>(s, call, {batch, head, q0, queries, k0, keys, visible}, {true, false});
    }
  }
}

template <class T>
void fill_delta(const Call<T>& call, const Tensor& out) {
  using S = StatsType<T>;
  const AttentionShape& shape = call.options.shape;
  const std::int64_t tokens = shape.batch * shape.sequence;
#pragma omp parallel for if (is_large(shape))
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const T* a = call.d_out.template ptr<T>() + token * call.d_out.leading + head * call.dim;
      const T* b = out.ptr<T>() + token * out.leading + head * call.dim;
      S sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t d = 0; d < call.dim; ++d) sum += load(a[d]) * load(b[d]);
      call.delta.template ptr<S>()[head * call.delta.leading + token] = sum;
    }
  }
}

template <class T>
void backward(Call<T> call, const Tensor& out, const Tensor& workspace) {
  using S = StatsType<T>;
  const AttentionShape& shape = call.options.shape;
  const std::int64_t tokens = shape.batch * shape.sequence;
  LLMTRAIN_CHECK(workspace.bytes() >= shape.heads * tokens * size_of(dtype_of<S>));
  call.delta = Tensor::dense(workspace.data, dtype_of<S>, {shape.heads, tokens});
  call.rule = score_rule<S>(call.options);
  call.dim = shape.head_dim;
  call.ld = (shape.head_dim + simd::lanes<S> - 1) / simd::lanes<S> * simd::lanes<S>;
  fill_delta(call, out);
  // The two drivers give the same bits, so the choice may depend on the threads: rounds of five products, or seven
  // spread evenly. By heads, d_q is summed up in memory, where narrow data would be rounded between blocks of keys.
  const std::int64_t tasks = shape.batch * shape.kv_heads;
  const std::int64_t threads = is_large(shape) ? omp_get_max_threads() : 1;
  const std::int64_t rounds = (tasks + threads - 1) / threads;
  const bool rounds_once = std::is_same_v<S, T> || shape.sequence <= key_block;
  if (rounds_once && 5 * rounds * threads <= 7 * tasks)
    run_by_head(call);
  else
    run_by_block(call);
}

}  // namespace

void cpu_attention_backward(Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_out, Tensor q, Tensor k, Tensor v, Tensor out,
                            Tensor lse, Tensor starts, const AttentionOptions& options, Tensor workspace) {
  check_attention(options, q.dtype);
  if (q.dtype == DType::bf16)
    return backward<Bf16>({d_q, d_k, d_v, d_out, q, k, v, lse, starts, {}, options, {}, 0, 0}, out, workspace);
  if (q.dtype == DType::fp32)
    return backward<float>({d_q, d_k, d_v, d_out, q, k, v, lse, starts, {}, options, {}, 0, 0}, out, workspace);
  backward<double>({d_q, d_k, d_v, d_out, q, k, v, lse, starts, {}, options, {}, 0, 0}, out, workspace);
}

}  // namespace llmtrain
