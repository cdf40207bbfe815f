// SPDX-License-Identifier: Apache-2.0
/// Initial weights by global element index, on the CPU.
#include "cpu/cpu_kernels.hpp"
#include "cpu/loops.hpp"
#include "llmtrain/base/philox.hpp"

namespace llmtrain {

namespace {

/// out[i] = deviation * normal number first + i, i in [0, n): both numbers of a pair are used where both are wanted.
template <class T>
void fill_normal(T* out, std::int64_t n, InitKey key, std::uint64_t first, double deviation) {
  std::int64_t i = 0;
  if ((first & 1) != 0 && n > 0) store(out[i++], deviation * normal_number(key.seed, key.name_hash, first));
  constexpr std::int64_t chunk = 128;  // pairs whose bits wait on the stack: two loops that vectorise
  while (i + 2 <= n) {
    RandomBits bits[chunk];
    const std::int64_t pairs = std::min(chunk, (n - i) / 2);
    const std::uint64_t pair = (first + static_cast<std::uint64_t>(i)) / 2;
#pragma omp simd
    for (std::int64_t k = 0; k < pairs; ++k) {
      bits[k] = random_bits(key.seed, key.name_hash, pair + static_cast<std::uint64_t>(k));
    }
    T* const to = out + i;
#pragma omp simd
    for (std::int64_t k = 0; k < pairs; ++k) {
      const NormalPair normal = normal_from_bits(bits[k]);
      store(to[2 * k], deviation * normal.first);
      store(to[2 * k + 1], deviation * normal.second);
    }
    i += 2 * pairs;
  }
  if (i < n) {
    store(out[i], deviation * normal_number(key.seed, key.name_hash, first + static_cast<std::uint64_t>(i)));
  }
}

}  // namespace

void CpuKernels::do_init_normal(Stream, Tensor destination, InitKey key, GlobalBlock block, double stddev) {
  dispatch("init_normal", destination.dtype, [&]<class T>(T) {
    Tensor d = destination;
    if (d.rank == 1) d = d.reshaped({1, d.rows()});  // one row of a global matrix
    const Matrix<T> out(d);
    constexpr std::int64_t width = 1024;
    const std::int64_t blocks = (out.cols + width - 1) / width;
#pragma omp parallel for collapse(2) schedule(static) if (d.numel() >= width)
    for (std::int64_t r = 0; r < out.rows; ++r) {
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t begin = b * width, end = std::min(out.cols, begin + width);
        const std::int64_t first = (block.first_row + r) * block.global_cols + block.first_col + begin;
        fill_normal(out.row(r) + begin, end - begin, key, static_cast<std::uint64_t>(first), stddev);
      }
    }
  });
}

}  // namespace llmtrain
