// SPDX-License-Identifier: Apache-2.0
/// What cuDNN's attention wants laid out otherwise than the seam has it: statistics, and documents as batch entries.
#include "cuda/attention.hpp"
#include "cuda/loops.cuh"

namespace llmtrain {

namespace {

unsigned blocks_for(std::int64_t count) { return static_cast<unsigned>((count + block_threads - 1) / block_threads); }

__global__ void __launch_bounds__(block_threads)
    pack_stats_kernel(float* packed, Matrix<float> lse, AttentionShape shape, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t row = i / shape.sequence, batch = row / shape.heads, head = row % shape.heads;
  packed[i] = *lse.at(head, batch * shape.sequence + i % shape.sequence);
}

__global__ void __launch_bounds__(block_threads)
    transpose_stats_kernel(Matrix<float> to, Matrix<float> from, std::int64_t cols, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (i < count) *to.at(i / cols, i % cols) = *from.at(i % cols, i / cols);
}

constexpr int layout_threads = 1024;

/// Where documents begin and end.
struct Documents {
  const std::int32_t* starts;
  std::int64_t tokens, sequence;

  __device__ bool begins(std::int64_t token) const {
    const std::int64_t place = token % sequence;
    return place == 0 || starts[token] == place;
  }
  __device__ bool ends_before(std::int64_t token) const { return token == tokens || begins(token); }
  __device__ bool single(std::int64_t token) const { return begins(token) && ends_before(token + 1); }
};

/// One block. A thread counts the entries that begin among its share of the tokens; sums over the threads before it
/// number them.
__global__ void __launch_bounds__(layout_threads) documents_kernel(DocumentLayout layout, Documents documents) {
  __shared__ int counts[layout_threads];
  const int me = static_cast<int>(threadIdx.x);
  const std::int64_t tokens = documents.tokens, share = (tokens + layout_threads - 1) / layout_threads;
  const std::int64_t first = me * share, last = first + share < tokens ? first + share : tokens;
  const auto enters = [&](std::int64_t token) {
    return documents.begins(token) && (layout.single || !documents.ends_before(token + 1));
  };
  int count = 0;
  for (std::int64_t token = first; token < last; ++token) count += enters(token) ? 1 : 0;
  counts[me] = count;
  __syncthreads();
  for (int reach = 1; reach < layout_threads; reach *= 2) {
    const int before = me >= reach ? counts[me - reach] : 0;
    __syncthreads();
    counts[me] += before;
    __syncthreads();
  }
  const std::int64_t entries = counts[layout_threads - 1];
  for (std::int64_t i = entries + me; i <= layout.capacity; i += layout_threads) {
    layout.begins[i] = static_cast<std::int32_t>(tokens);
    if (i < layout.capacity) layout.lengths[i] = 0;
  }
  std::int64_t number = counts[me] - count;  // entries that began before the token
  for (std::int64_t token = first; token < last; ++token) {
    if (enters(token) && number < layout.capacity) layout.begins[number++] = static_cast<std::int32_t>(token);
    // The end first, until all beginnings are known.
    if (number > 0 && documents.ends_before(token + 1) && (layout.single || !documents.single(token))) {
      layout.lengths[number - 1] = static_cast<std::int32_t>(token + 1);
    }
  }
  __syncthreads();
  for (std::int64_t i = me; i <= layout.capacity; i += layout_threads) {
    const std::int64_t begin = layout.begins[i];
    if (i < entries && i < layout.capacity) layout.lengths[i] -= static_cast<std::int32_t>(begin);
    for (int tensor = 0; tensor < layout.tensors; ++tensor) {
      if (layout.short_offsets) {
        reinterpret_cast<std::int32_t*>(layout.offsets[tensor])[i] =
            static_cast<std::int32_t>(begin * layout.leading[tensor]);
      } else {
        layout.offsets[tensor][i] = begin * layout.leading[tensor];
      }
    }
  }
}

struct SingleTokens {
  Documents documents;
  Matrix<Bf16> q, k, v, out, d_out, d_q, d_k, d_v;
  Matrix<float> lse;
  std::int64_t heads, kv_heads, dim;
  float scale;
};

SingleTokens single_tokens(const AttentionTensors& t, const AttentionOptions& o) {
  const AttentionShape& s = o.shape;
  return {{t.starts.ptr<std::int32_t>(), t.starts.numel(), s.sequence},
          Matrix<Bf16>(t.q),
          Matrix<Bf16>(t.k),
          Matrix<Bf16>(t.v),
          Matrix<Bf16>(t.out),
          Matrix<Bf16>(t.d_out),
          Matrix<Bf16>(t.d_q),
          Matrix<Bf16>(t.d_k),
          Matrix<Bf16>(t.d_v),
          Matrix<float>(t.lse),
          s.heads,
          s.kv_heads,
          s.head_dim,
          static_cast<float>(o.scale)};
}

/// A block a token, a warp a head.
__global__ void __launch_bounds__(block_threads) single_tokens_forward_kernel(SingleTokens s) {
  const std::int64_t token = blockIdx.x, group = s.heads / s.kv_heads;
  if (!s.documents.single(token)) return;
  const int lane = static_cast<int>(threadIdx.x) % warp;
  for (std::int64_t head = threadIdx.x / warp; head < s.heads; head += block_threads / warp) {
    const std::int64_t mine = head * s.dim, shared = head / group * s.dim;
    float product = 0;
    for (std::int64_t d = lane; d < s.dim; d += warp) {
      product += load(*s.q.at(token, mine + d)) * load(*s.k.at(token, shared + d));
      *s.out.at(token, mine + d) = *s.v.at(token, shared + d);
    }
    product = warp_sum(product);
    if (lane == 0) *s.lse.at(head, token) = product * s.scale;
  }
}

__global__ void __launch_bounds__(block_threads) single_tokens_backward_kernel(SingleTokens s) {
  const std::int64_t token = blockIdx.x, group = s.heads / s.kv_heads;
  if (!s.documents.single(token)) return;
  for (std::int64_t i = threadIdx.x; i < s.heads * s.dim; i += block_threads) store(*s.d_q.at(token, i), 0.0f);
  for (std::int64_t i = threadIdx.x; i < s.kv_heads * s.dim; i += block_threads) {
    const std::int64_t head = i / s.dim * group, d = i % s.dim;
    float sum = 0;
    for (std::int64_t g = 0; g < group; ++g) sum += load(*s.d_out.at(token, (head + g) * s.dim + d));
    store(*s.d_k.at(token, i), 0.0f);
    store(*s.d_v.at(token, i), sum);
  }
}

}  // namespace

void pack_stats(cudaStream_t stream, Tensor packed, Tensor lse, const AttentionShape& shape) {
  const std::int64_t count = packed.numel();
  pack_stats_kernel<<<blocks_for(count), block_threads, 0, stream>>>(packed.ptr<float>(), Matrix<float>(lse), shape,
                                                                     count);
  check_launch("attention_backward");
}

void transpose_stats(cudaStream_t stream, Tensor to, Tensor from) {
  transpose_stats_kernel<<<blocks_for(to.numel()), block_threads, 0, stream>>>(Matrix<float>(to), Matrix<float>(from),
                                                                               to.cols(), to.numel());
  check_launch("attention");
}

void lay_out_documents(cudaStream_t stream, const DocumentLayout& layout, Tensor starts, std::int64_t sequence) {
  documents_kernel<<<1, layout_threads, 0, stream>>>(layout, {starts.ptr<std::int32_t>(), starts.numel(), sequence});
  check_launch("attention");
}

void single_tokens_forward(cudaStream_t stream, const AttentionTensors& t, const AttentionOptions& options) {
  single_tokens_forward_kernel<<<static_cast<unsigned>(t.starts.numel()), block_threads, 0, stream>>>(
      single_tokens(t, options));
  check_launch("attention_forward");
}

void single_tokens_backward(cudaStream_t stream, const AttentionTensors& t, const AttentionOptions& options) {
  single_tokens_backward_kernel<<<static_cast<unsigned>(t.starts.numel()), block_threads, 0, stream>>>(
      single_tokens(t, options));
  check_launch("attention_backward");
}

}  // namespace llmtrain
