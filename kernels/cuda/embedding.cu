// SPDX-License-Identifier: Apache-2.0
/// Rows of the embedding table by token id, and their gradients, on the GPU.
#include "cuda/cuda_kernels.hpp"
#include "cuda/loops.cuh"

namespace llmtrain {

namespace {

/// Token r takes, or adds, its row of the table; 0 where that row is not of this rank.
template <class T>
struct Forward {
  template <int width>
  struct Body {
    Matrix<T> out, table;
    const std::int32_t* ids;
    VocabRange vocab;
    bool accumulate;
    __device__ void operator()(std::int64_t r, std::int64_t c) const {
      const std::int64_t row = ids[r] - vocab.first;
      const bool here = row >= 0 && row < vocab.valid;
      if (accumulate) {
        if (!here) return;
        auto sum = out.template values<width>(r, c);
        const auto term = table.template values<width>(row, c);
#pragma unroll
        for (int i = 0; i < width; ++i) sum.at[i] += term.at[i];
        out.put(r, c, sum);
      } else {
        out.put(r, c, here ? table.template values<width>(row, c) : Values<StatsType<T>, width>{});
      }
    }
  };
};

/// The row of the table that a run of equal ids in sorted order belongs to: the thread at the run's first place adds all of
/// the run, in order, to what the table holds. No two threads share an element, and one run's order is the order of
/// positions.
template <class D, class T>
struct AddSorted {
  template <int width>
  struct Body {
    Matrix<D> d_table;
    Matrix<T> d_out;
    const std::int32_t *ids, *order;
    VocabRange vocab;
    std::int64_t tokens;
    __device__ void operator()(std::int64_t i, std::int64_t c) const {
      const std::int32_t id = ids[order[i]];
      const std::int64_t row = id - vocab.first;
      if (row < 0 || row >= vocab.valid || (i > 0 && ids[order[i - 1]] == id)) return;
      auto sum = d_table.template values<width>(row, c);
      for (std::int64_t at = i; at < tokens; ++at) {
        const std::int32_t token = order[at];
        if (ids[token] != id) break;
        const auto term = d_out.template values<width>(token, c);
#pragma unroll
        for (int k = 0; k < width; ++k) sum.at[k] += static_cast<StatsType<D>>(term.at[k]);
      }
      d_table.put(row, c, sum);
    }
  };
};

/// Without sorted ids: the block of table row blockIdx.x looks through all tokens, a block's width at a time, and adds
/// those of its row in order.
template <class D, class T>
__global__ void __launch_bounds__(block_threads)
    gather_rows(Matrix<D> d_table, Matrix<T> d_out, const std::int32_t* ids, std::int64_t first, std::int64_t tokens,
                std::int64_t cols) {
  __shared__ std::int32_t found[block_threads];
  __shared__ int counts[block_threads / warp];
  const std::int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % warp, mine = static_cast<int>(threadIdx.x) / warp;
  for (std::int64_t begin = 0; begin < tokens; begin += block_threads) {
    const std::int64_t t = begin + threadIdx.x;
    const unsigned hits = __ballot_sync(all_lanes, t < tokens && ids[t] - first == row);
    if (lane == 0) counts[mine] = __popc(hits);
    __syncthreads();
    int before = 0, total = 0;
    for (int w = 0; w < block_threads / warp; ++w) {
      before += w < mine ? counts[w] : 0;
      total += counts[w];
    }
    if ((hits >> lane & 1u) != 0) found[before + __popc(hits & ((1u << lane) - 1))] = static_cast<std::int32_t>(t);
    __syncthreads();
    for (std::int64_t c = threadIdx.x; total > 0 && c < cols; c += block_threads) {
      D* const to = d_table.at(row, c);
      StatsType<D> sum = load(*to);
      for (int i = 0; i < total; ++i) sum += static_cast<StatsType<D>>(load(*d_out.at(found[i], c)));
      store(*to, sum);
    }
    __syncthreads();
  }
}

}  // namespace

void CudaKernels::do_embedding_forward(Stream s, Tensor out, Tensor ids, Tensor table, VocabRange vocab, Write write) {
  dispatch("embedding_forward", out.dtype, [&]<class T>(T) {
    for_columns<Forward<T>::template Body, full_width<T>>(streams_[s], "embedding_forward", {out, table}, {},
                                                          Matrix<T>(out), Matrix<T>(table), ids.ptr<std::int32_t>(),
                                                          vocab, write == Write::accumulate);
  });
}

void CudaKernels::do_embedding_backward(Stream s, Tensor d_table, Tensor d_out, Tensor ids, Tensor order,
                                        VocabRange vocab, Write write) {
  if (write == Write::overwrite) do_fill(s, d_table, 0);
  if (d_out.numel() == 0 || vocab.valid == 0) return;
  dispatch("embedding_backward", d_out.dtype, [&]<class T>(T) {
    const std::int32_t* const id = ids.ptr<std::int32_t>();
    dispatch_stored<StatsType<T>>("gradients of an embedding", d_table.dtype, [&]<class D>(D) {
      if (order) {
        for_columns<AddSorted<D, T>::template Body, full_width<T>>(streams_[s], "embedding_backward", {d_out, d_table},
                                                                   {}, Matrix<D>(d_table), Matrix<T>(d_out), id,
                                                                   order.ptr<std::int32_t>(), vocab, d_out.rows());
      } else {
        gather_rows<<<static_cast<unsigned>(vocab.valid), block_threads, 0, streams_[s]>>>(
            Matrix<D>(d_table), Matrix<T>(d_out), id, vocab.first, d_out.rows(), d_out.cols());
        check_launch("embedding_backward");
      }
    });
  });
}

}  // namespace llmtrain
