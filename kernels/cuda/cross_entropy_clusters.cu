// SPDX-License-Identifier: Apache-2.0
/// Statistics and gradient of the softmax cross-entropy in one pass over memory: the logits of a token lie in the shared
/// memory of a cluster of blocks, each with its part of them.
#include <cooperative_groups.h>
#include <cuda_pipeline.h>

#include <algorithm>

#include "cuda/cross_entropy.cuh"
#include "cuda/cuda_kernels.hpp"

namespace llmtrain {

namespace {

constexpr int blocks_at_work = 3;       // on a multiprocessor: while one waits for logits others compute and store
constexpr int shared_bytes = 76 << 10;  // that each of them has, of the 228 KB of GPUs with clusters
constexpr int system_bytes = 1 << 10;   // of these, not for us
constexpr int most_part_blocks = 8;     // that a cluster has on every such GPU

/// How a row of `packs` 16-byte packs is cut: into equal parts, but for the last one.
template <class S>
struct RowParts {
  int blocks = 1, packs = 0;  ///< of a row; of a part

  __host__ __device__ int bytes() const {  ///< shared memory of a block: its part and the sums of all the row's warps
    return packs * static_cast<int>(sizeof(uint4)) + blocks * row_warps * static_cast<int>(sizeof(SoftmaxSums<S>));
  }
};

/// In as few parts as fit; with 0 blocks where a row is too long for any.
template <class S>
RowParts<S> row_parts(std::int64_t packs) {
  for (int blocks = 1; blocks <= most_part_blocks; blocks *= 2) {
    const std::int64_t part = (packs + blocks - 1) / blocks;
    if (part > shared_bytes / static_cast<int>(sizeof(uint4))) continue;
    const RowParts<S> parts{blocks, static_cast<int>(part)};
    if (parts.bytes() <= shared_bytes - system_bytes) return parts;
  }
  return {0, 0};
}

/// The sums of all warps of a row's blocks, the same bits in every thread. A warp writes its own where they are read: in
/// the shared memory of every block, which then needs no other again.
template <class S, class Cluster>
__device__ __forceinline__ SoftmaxSums<S> sums_of_row(SoftmaxSums<S> sums, const Cluster& row, const RowParts<S>& parts,
                                                      SoftmaxSums<S>* shared) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp;
  sums.add_lanes();
  row.barrier_wait();  // all blocks run
  if (lane < parts.blocks) {
    *row.map_shared_rank(shared + static_cast<int>(row.block_rank()) * row_warps + thread / warp, lane) = sums;
  }
  row.sync();
  sums = {};
#pragma unroll 1
  for (int i = lane; i < parts.blocks * row_warps; i += warp) sums.add(shared[i]);
  sums.add_lanes();
  return sums;
}

/// Every thread asks for its packs of the row, adds them up as they arrive and makes the gradient of the same packs, so
/// that blocks wait for each other once.
template <class T>
__global__ void __launch_bounds__(row_threads, blocks_at_work)
    stats_and_gradient_of_row(const GradientCall<T> call, const RowParts<StatsType<T>> parts) {
#if __CUDA_ARCH__ >= 900
  using S = StatsType<T>;
  constexpr int width = full_width<T>;
  constexpr int thread_packs = (shared_bytes / static_cast<int>(sizeof(uint4)) + row_threads - 1) / row_threads;
  constexpr int stage_packs = 2;  // that a thread waits for at a time
  constexpr int stages = thread_packs / stage_packs;
  static_assert(thread_packs % stage_packs == 0);
  const auto row = cooperative_groups::this_cluster();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;");  // this block runs: others can write to its shared memory
  const int block = static_cast<int>(row.block_rank()), thread = static_cast<int>(threadIdx.x);
  const std::int64_t t = blockIdx.x / static_cast<unsigned>(parts.blocks);
  const int first = block * parts.packs;
  const int count = std::min(parts.packs, static_cast<int>(call.cols) / width - first);
  auto* const logits = reinterpret_cast<uint4*>(call.logits.at(t, first * width));
  extern __shared__ uint4 part[];
#pragma unroll
  for (int p = 0; p < thread_packs; ++p) {
    const int i = p * row_threads + thread;
    if (i < count) __pipeline_memcpy_async(part + i, logits + i, sizeof(uint4));
    if (p % stage_packs == stage_packs - 1) __pipeline_commit();
  }

  SoftmaxSums<S> sums;
  const int valid = static_cast<int>(call.vocab.valid), full = valid / width;  // packs of true columns only
#pragma unroll
  for (int p = 0; p < thread_packs; ++p) {
    const int i = p * row_threads + thread;
    if (p % stage_packs == 0) __pipeline_wait_prior(stages - 1 - p / stage_packs);
    if (i < count && first + i < full) sums.add(widen_words<T>(part[i]));
  }
  S target_logit{0};
  if (block == 0) {
    const int c = full * width + thread, target = column_of(call.targets[t], call.vocab);
    if (c < valid) sums.add(call.logits.template values<1>(t, c));
    if (thread == 0 && target >= 0) target_logit = load(*call.logits.at(t, target));  // before it is overwritten
  }
  sums = sums_of_row(sums, row, parts, reinterpret_cast<SoftmaxSums<S>*>(part + parts.packs));
  if (block == 0 && thread == 0) {
    *call.stats.at(0, t) = sums.highest();
    *call.stats.at(1, t) = sums.sum;
    *call.stats.at(2, t) = target_logit;
  }

  const RowGradient<S> gradient(call, t, sums.highest(), sums.sum);
#pragma unroll 1
  for (int i = thread; i < count; i += row_threads) {
    auto x = widen_words<T>(part[i]);
    gradient.apply(x, (first + i) * width);
    logits[i] = bits_as<uint4>(narrow<T>(x));
  }
#endif
}

/// Whether the kernel above was compiled for a GPU with clusters; allows it its shared memory then. Once a kernel.
template <class T>
bool runs_in_clusters() {
  static const bool answer = [] {
    const auto kernel = stats_and_gradient_of_row<T>;
    if (!runs_as_sm_90(kernel)) return false;
    const auto set = [&](cudaFuncAttribute attribute, int value) {
      check_cuda(cudaFuncSetAttribute(kernel, attribute, value), "cudaFuncSetAttribute");
    };
    set(cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes - system_bytes);
    set(cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    return true;
  }();
  return answer;
}

/// Does nothing and returns false where the GPU has no clusters or a row is too long or not made of packs.
template <class T>
bool launch_in_clusters(cudaStream_t stream, const Tensor& logits, const GradientCall<T>& call) {
  constexpr int width = full_width<T>;
  const RowParts<StatsType<T>> parts = row_parts<StatsType<T>>(logits.cols() / width);
  if (parts.blocks == 0 || !is_packed({logits}, width) || !runs_in_clusters<T>()) return false;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(parts.blocks), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(logits.rows() * parts.blocks));
  config.blockDim = dim3(row_threads);
  config.dynamicSmemBytes = static_cast<std::size_t>(parts.bytes());
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  check_cuda(cudaLaunchKernelEx(&config, stats_and_gradient_of_row<T>, call, parts), "cudaLaunchKernelEx");
  return true;
}

}  // namespace

void CudaKernels::do_cross_entropy_with_gradient(Stream s, Tensor stats, Tensor logits, Tensor targets, Tensor weights,
                                                 VocabRange vocab) {
  if (logits.rows() == 0) return;
  bool launched = false;
  dispatch("cross_entropy_with_gradient", logits.dtype, [&]<class T>(T) {
    if constexpr (sizeof(T) < 8) {
      launched = launch_in_clusters(streams_[s], logits, gradient_call<T>(logits, stats, targets, weights, vocab));
    }
  });
  if (launched) return;
  do_cross_entropy_stats(s, stats, logits, targets, vocab);
  do_cross_entropy_gradient(s, logits, stats, targets, weights, vocab);
}

}  // namespace llmtrain
