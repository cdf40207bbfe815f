// SPDX-License-Identifier: Apache-2.0
/// Initial weights by global element index, on the GPU: the CPU's bits (this file must be compiled without contraction).
#include "cuda/cuda_kernels.hpp"
#include "cuda/loops.cuh"
#include "llmtrain/base/philox.hpp"

namespace llmtrain {

namespace {

/// Thread p of row r makes the p-th pair of normal numbers that touches the row, and stores what lies in it.
template <class T>
struct Pairs {
  Matrix<T> out;
  std::int64_t cols;
  InitKey key;
  GlobalBlock block;
  double stddev;

  __device__ void operator()(std::int64_t r, std::int64_t p) const {
    const std::int64_t first = (block.first_row + r) * block.global_cols + block.first_col;
    const std::int64_t pair = first / 2 + p;
    const NormalPair normal = normal_pair(key.seed, key.name_hash, static_cast<std::uint64_t>(pair));
    const std::int64_t c = 2 * pair - first;  // column of its first number; -1 where the row begins between the two
    if (c >= 0 && c < cols) store(*out.at(r, c), stddev * normal.first);
    if (c + 1 < cols) store(*out.at(r, c + 1), stddev * normal.second);
  }
};

}  // namespace

void CudaKernels::do_init_normal(Stream s, Tensor destination, InitKey key, GlobalBlock block, double stddev) {
  Tensor d = destination;
  if (d.rank == 1) d = d.reshaped({1, d.rows()});  // one row of a global matrix
  dispatch("init_normal", d.dtype, [&]<class T>(T) {
    launch_packs<1>(streams_[s], "init_normal", d.rows(), d.cols() / 2 + 1,
                    Pairs<T>{Matrix<T>(d), d.cols(), key, block, stddev});
  });
}

}  // namespace llmtrain
