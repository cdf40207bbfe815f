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

/// One block. A thread counts the documents that begin among its share of the tokens; sums over the threads before it
/// number them.
__global__ void __launch_bounds__(layout_threads)
    documents_kernel(DocumentLayout layout, const std::int32_t* starts, std::int64_t tokens, std::int64_t sequence) {
  __shared__ int counts[layout_threads];
  const int me = static_cast<int>(threadIdx.x);
  const std::int64_t share = (tokens + layout_threads - 1) / layout_threads;
  const std::int64_t first = me * share, last = first + share < tokens ? first + share : tokens;
  const auto begins = [&](std::int64_t token) {
    const std::int64_t place = token % sequence;
    return place == 0 || starts[token] == place;
  };
  int count = 0;
  for (std::int64_t token = first; token < last; ++token) count += begins(token) ? 1 : 0;
  counts[me] = count;
  __syncthreads();
  for (int reach = 1; reach < layout_threads; reach *= 2) {
    const int before = me >= reach ? counts[me - reach] : 0;
    __syncthreads();
    counts[me] += before;
    __syncthreads();
  }
  std::int64_t number = counts[me] - count;  // documents that began before the share
  for (std::int64_t token = first; token < last; ++token) {
    if (begins(token) && number <= layout.capacity) layout.begins[number++] = static_cast<std::int32_t>(token);
  }
  for (std::int64_t i = counts[layout_threads - 1] + me; i <= layout.capacity; i += layout_threads) {
    layout.begins[i] = static_cast<std::int32_t>(tokens);
  }
  __syncthreads();
  for (std::int64_t i = me; i <= layout.capacity; i += layout_threads) {
    const std::int64_t begin = layout.begins[i];
    if (i < layout.capacity) layout.lengths[i] = static_cast<std::int32_t>(layout.begins[i + 1] - begin);
    for (int tensor = 0; tensor < layout.tensors; ++tensor) {
      layout.offsets[tensor][i] = begin * layout.leading[tensor];
    }
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
  documents_kernel<<<1, layout_threads, 0, stream>>>(layout, starts.ptr<std::int32_t>(), starts.numel(), sequence);
  check_launch("attention");
}

}  // namespace llmtrain
