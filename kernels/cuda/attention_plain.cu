// SPDX-License-Identifier: Apache-2.0
/// Causal attention by plain kernels: a block of threads a query, or a key, and tiles of the other side.
#include <cmath>
#include <limits>

#include "cuda/attention.hpp"
#include "cuda/loops.cuh"

namespace llmtrain {

namespace {

constexpr int threads = 128;       // of a block, and keys or queries of a tile
constexpr int max_head_dim = 256;  // at most two dimensions a thread

template <class T>
struct Call {
  using S = StatsType<T>;
  Matrix<T> q, k, v, out, d_out, d_q, d_k, d_v;
  Matrix<S> lse, delta;
  const std::int32_t* starts;
  std::int64_t sequence, heads, kv_heads, dim, window;
  S scale, soft_cap;

  /// First key of its sequence that query i of that sequence sees.
  __device__ std::int64_t first_key(std::int64_t base, std::int64_t i) const {
    std::int64_t first = window > 0 && i >= window ? i - window + 1 : 0;
    if (starts != nullptr && starts[base + i] > first) first = starts[base + i];
    return first < i ? first : i;
  }
  /// The score of a scaled product, and what its gradient is multiplied by to become the product's.
  __device__ S score(S product, S& slope) const {
    slope = scale;
    if (soft_cap == S{0}) return product * scale;
    const S t = std::tanh(product * scale / soft_cap);
    slope = scale * (S{1} - t * t);
    return soft_cap * t;
  }
};

template <class S, class T>
__device__ S dot(const S* a, const T* b, std::int64_t n) {
  S sum{0};
  for (std::int64_t d = 0; d < n; ++d) sum = std::fma(a[d], load(b[d]), sum);
  return sum;
}

/// The larger; NaN where one of them is.
template <class S>
__device__ S larger(S a, S b) {
  return b > a || b != b ? b : a;
}

template <class S>
__device__ S block_maximum(S value, S* shared) {
#pragma unroll
  for (int offset = warp / 2; offset > 0; offset /= 2) {
    value = larger(value, __shfl_xor_sync(all_lanes, value, offset));
  }
  __syncthreads();
  if (threadIdx.x % warp == 0) shared[threadIdx.x / warp] = value;
  __syncthreads();
  value = shared[0];
#pragma unroll
  for (int w = 1; w < threads / warp; ++w) value = larger(value, shared[w]);
  return value;
}

template <class S>
__device__ S block_sum(S value, S* shared) {
  return group_sum<threads>(value, shared);
}

/// Block (query, head, sequence): scores of a tile of keys, a key a thread, then the sum over the tile, a dimension a
/// thread, rescaled when the maximum rises.
template <class T>
__global__ void __launch_bounds__(threads) forward_kernel(const Call<T> call) {
  using S = StatsType<T>;
  __shared__ S query[max_head_dim], weight[threads], shared[threads / warp];
  const std::int64_t i = blockIdx.x, head = blockIdx.y, base = blockIdx.z * call.sequence;
  const std::int64_t column = head * call.dim, kv_column = head / (call.heads / call.kv_heads) * call.dim;
  const int me = static_cast<int>(threadIdx.x);
  for (std::int64_t d = me; d < call.dim; d += threads) query[d] = load(*call.q.at(base + i, column + d));
  S maximum = std::numeric_limits<S>::lowest(), sum{0}, result[max_head_dim / threads] = {};
  __syncthreads();
  for (std::int64_t tile = call.first_key(base, i); tile <= i; tile += threads) {
    const std::int64_t j = tile + me;
    S slope, score = std::numeric_limits<S>::lowest();
    if (j <= i) score = call.score(dot(query, call.k.at(base + j, kv_column), call.dim), slope);
    const S top = larger(maximum, block_maximum(score, shared));
    const S factor = std::exp(maximum - top), p = j <= i ? std::exp(score - top) : S{0};
    maximum = top;
    sum = sum * factor + block_sum(p, shared);
    weight[me] = p;
    __syncthreads();
    const int count = static_cast<int>(i - tile + 1 < threads ? i - tile + 1 : threads);
#pragma unroll
    for (int part = 0; part < max_head_dim / threads; ++part) {
      const std::int64_t d = part * threads + me;
      if (d >= call.dim) continue;
      S total = result[part] * factor;
      for (int key = 0; key < count; ++key) {
        total = std::fma(weight[key], load(*call.v.at(base + tile + key, kv_column + d)), total);
      }
      result[part] = total;
    }
    __syncthreads();
  }
#pragma unroll
  for (int part = 0; part < max_head_dim / threads; ++part) {
    const std::int64_t d = part * threads + me;
    if (d < call.dim) store(*call.out.at(base + i, column + d), result[part] / sum);
  }
  if (me == 0) *call.lse.at(head, base + i) = maximum + std::log(sum);
}

/// delta = sum over head_dim of d_out out; a warp a token and head.
template <class T>
__global__ void __launch_bounds__(threads) delta_kernel(const Call<T> call, std::int64_t tokens) {
  using S = StatsType<T>;
  const std::int64_t task = static_cast<std::int64_t>(blockIdx.x) * (threads / warp) + threadIdx.x / warp;
  const std::int64_t token = task / call.heads, head = task % call.heads;
  S sum{0};
  if (token < tokens) {
    for (std::int64_t d = threadIdx.x % warp; d < call.dim; d += warp) {
      sum = std::fma(load(*call.d_out.at(token, head * call.dim + d)), load(*call.out.at(token, head * call.dim + d)),
                     sum);
    }
  }
  sum = warp_sum(sum);
  if (token < tokens && threadIdx.x % warp == 0) *call.delta.at(head, token) = sum;
}

/// Block (query, head, sequence): d_q = sum over keys of d_s k.
template <class T>
__global__ void __launch_bounds__(threads) query_gradient_kernel(const Call<T> call) {
  using S = StatsType<T>;
  __shared__ S query[max_head_dim], incoming[max_head_dim], weight[threads];
  const std::int64_t i = blockIdx.x, head = blockIdx.y, base = blockIdx.z * call.sequence;
  const std::int64_t column = head * call.dim, kv_column = head / (call.heads / call.kv_heads) * call.dim;
  const int me = static_cast<int>(threadIdx.x);
  for (std::int64_t d = me; d < call.dim; d += threads) {
    query[d] = load(*call.q.at(base + i, column + d));
    incoming[d] = load(*call.d_out.at(base + i, column + d));
  }
  const S log_sum = *call.lse.at(head, base + i), delta = *call.delta.at(head, base + i);
  S result[max_head_dim / threads] = {};
  __syncthreads();
  for (std::int64_t tile = call.first_key(base, i); tile <= i; tile += threads) {
    const std::int64_t j = tile + me;
    S d_s{0};
    if (j <= i) {
      S slope;
      const S p = std::exp(call.score(dot(query, call.k.at(base + j, kv_column), call.dim), slope) - log_sum);
      d_s = p * (dot(incoming, call.v.at(base + j, kv_column), call.dim) - delta) * slope;
    }
    weight[me] = d_s;
    __syncthreads();
    const int count = static_cast<int>(i - tile + 1 < threads ? i - tile + 1 : threads);
#pragma unroll
    for (int part = 0; part < max_head_dim / threads; ++part) {
      const std::int64_t d = part * threads + me;
      if (d >= call.dim) continue;
      for (int key = 0; key < count; ++key) {
        result[part] = std::fma(weight[key], load(*call.k.at(base + tile + key, kv_column + d)), result[part]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int part = 0; part < max_head_dim / threads; ++part) {
    const std::int64_t d = part * threads + me;
    if (d < call.dim) store(*call.d_q.at(base + i, column + d), result[part]);
  }
}

/// Block (key, kv head, sequence): d_k = sum of d_s q and d_v = sum of p d_out over the queries that see the key, of every
/// head of the group.
template <class T>
__global__ void __launch_bounds__(threads) key_gradient_kernel(const Call<T> call) {
  using S = StatsType<T>;
  __shared__ S key[max_head_dim], value[max_head_dim], weight[threads], probability[threads];
  const std::int64_t j = blockIdx.x, kv_head = blockIdx.y, base = blockIdx.z * call.sequence;
  const std::int64_t kv_column = kv_head * call.dim, group = call.heads / call.kv_heads;
  const int me = static_cast<int>(threadIdx.x);
  for (std::int64_t d = me; d < call.dim; d += threads) {
    key[d] = load(*call.k.at(base + j, kv_column + d));
    value[d] = load(*call.v.at(base + j, kv_column + d));
  }
  S d_key[max_head_dim / threads] = {}, d_value[max_head_dim / threads] = {};
  __syncthreads();
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const std::int64_t column = head * call.dim;
    for (std::int64_t tile = j; tile < call.sequence; tile += threads) {
      const std::int64_t i = tile + me;
      S p{0}, d_s{0};
      if (i < call.sequence && call.first_key(base, i) <= j) {
        S slope;
        const S score = call.score(dot(key, call.q.at(base + i, column), call.dim), slope);
        p = std::exp(score - *call.lse.at(head, base + i));
        d_s = p * (dot(value, call.d_out.at(base + i, column), call.dim) - *call.delta.at(head, base + i)) * slope;
      }
      weight[me] = d_s;
      probability[me] = p;
      __syncthreads();
      const int count = static_cast<int>(call.sequence - tile < threads ? call.sequence - tile : threads);
#pragma unroll
      for (int part = 0; part < max_head_dim / threads; ++part) {
        const std::int64_t d = part * threads + me;
        if (d >= call.dim) continue;
        for (int query = 0; query < count; ++query) {
          const std::int64_t row = base + tile + query;
          d_key[part] = std::fma(weight[query], load(*call.q.at(row, column + d)), d_key[part]);
          d_value[part] = std::fma(probability[query], load(*call.d_out.at(row, column + d)), d_value[part]);
        }
      }
      __syncthreads();
    }
  }
#pragma unroll
  for (int part = 0; part < max_head_dim / threads; ++part) {
    const std::int64_t d = part * threads + me;
    if (d >= call.dim) continue;
    store(*call.d_k.at(base + j, kv_column + d), d_key[part]);
    store(*call.d_v.at(base + j, kv_column + d), d_value[part]);
  }
}

template <class T>
Call<T> make_call(const AttentionTensors& t, const Tensor& delta, const AttentionOptions& options) {
  using S = StatsType<T>;
  const AttentionShape& shape = options.shape;
  require(shape.head_dim <= max_head_dim, ExitCode::configuration,
          "model.head_dim is {}, above {}, the most that attention on the GPU can do", shape.head_dim, max_head_dim);
  return {Matrix<T>(t.q),
          Matrix<T>(t.k),
          Matrix<T>(t.v),
          Matrix<T>(t.out),
          Matrix<T>(t.d_out),
          Matrix<T>(t.d_q),
          Matrix<T>(t.d_k),
          Matrix<T>(t.d_v),
          Matrix<S>(t.lse),
          Matrix<S>(delta),
          t.starts ? t.starts.ptr<std::int32_t>() : nullptr,
          shape.sequence,
          shape.heads,
          shape.kv_heads,
          shape.head_dim,
          options.window,
          static_cast<S>(options.scale),
          static_cast<S>(options.soft_cap)};
}

dim3 blocks_of(const AttentionShape& shape, std::int64_t heads) {
  return {static_cast<unsigned>(shape.sequence), static_cast<unsigned>(heads), static_cast<unsigned>(shape.batch)};
}

}  // namespace

void plain_attention_forward(cudaStream_t stream, const AttentionTensors& t, const AttentionOptions& options) {
  const AttentionShape& shape = options.shape;
  dispatch("attention_forward", t.q.dtype, [&]<class T>(T) {
    const Call<T> call = make_call<T>(t, {}, options);
    if (shape.batch * shape.sequence == 0) return;
    forward_kernel<<<blocks_of(shape, shape.heads), threads, 0, stream>>>(call);
    check_launch("attention_forward");
  });
}

void plain_attention_backward(cudaStream_t stream, const AttentionTensors& t, Tensor delta,
                              const AttentionOptions& options) {
  const AttentionShape& shape = options.shape;
  dispatch("attention_backward", t.q.dtype, [&]<class T>(T) {
    const Call<T> call = make_call<T>(t, delta, options);
    const std::int64_t tokens = shape.batch * shape.sequence;
    if (tokens == 0) return;
    constexpr int tasks = threads / warp;
    const auto blocks = static_cast<unsigned>((tokens * shape.heads + tasks - 1) / tasks);
    delta_kernel<<<blocks, threads, 0, stream>>>(call, tokens);
    query_gradient_kernel<<<blocks_of(shape, shape.heads), threads, 0, stream>>>(call);
    key_gradient_kernel<<<blocks_of(shape, shape.kv_heads), threads, 0, stream>>>(call);
    check_launch("attention_backward");
  });
}

}  // namespace llmtrain
