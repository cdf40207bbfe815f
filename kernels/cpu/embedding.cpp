// SPDX-License-Identifier: Apache-2.0
/// Rows of the embedding table by token id, and their gradients, on the CPU.
#include <cstring>

#include "cpu/cpu_kernels.hpp"
#include "cpu/loops.hpp"

namespace llmtrain {

namespace {

/// Adds rows of the table to those of out.
void add_embedding(Tensor out, Tensor ids, Tensor table, VocabRange vocab) {
  const std::int32_t* const id = ids.ptr<std::int32_t>();
  dispatch("embedding_forward", out.dtype, [&]<class T>(T) {
    const Matrix<T> to(out), from(table);
#pragma omp parallel for schedule(static) if (out.numel() >= parallel_threshold)
    for (std::int64_t t = 0; t < to.rows; ++t) {
      const std::int64_t row = id[t] - vocab.first;
      if (row < 0 || row >= vocab.valid) continue;
      T* const sum = to.row(t);
      const T* const term = from.row(row);
#pragma omp simd
      for (std::int64_t c = 0; c < to.cols; ++c) store(sum[c], load(sum[c]) + load(term[c]));
    }
  });
}

}  // namespace

void CpuKernels::do_embedding_forward(Stream, Tensor out, Tensor ids, Tensor table, VocabRange vocab, Write write) {
  if (write == Write::accumulate) return add_embedding(out, ids, table, vocab);
  const std::int32_t* const id = ids.ptr<std::int32_t>();
  const std::int64_t row_bytes = table.cols() * size_of(table.dtype);
  const std::int64_t out_step = out.leading * size_of(out.dtype), table_step = table.leading * size_of(table.dtype);
  char* const to = static_cast<char*>(out.data);
  const char* const from = static_cast<const char*>(table.data);
#pragma omp parallel for schedule(static) if (out.numel() >= parallel_threshold)
  for (std::int64_t t = 0; t < out.rows(); ++t) {
    const std::int64_t row = id[t] - vocab.first;
    if (row >= 0 && row < vocab.valid) {
      std::memcpy(to + t * out_step, from + row * table_step, static_cast<std::size_t>(row_bytes));
    } else {
      std::memset(to + t * out_step, 0, static_cast<std::size_t>(row_bytes));
    }
  }
}

namespace {

constexpr std::int64_t task_width = 64;  ///< columns of a task; frequent ids are shared by tasks of other columns

/// Sums that a row of the table takes, `n` columns wide: as wide as the arithmetic, and rounded once.
template <class D>
class RowSum {
 public:
  void begin(D* to, std::int64_t n) {
    to_ = to;
    n_ = n;
    for (std::int64_t c = 0; c < n; ++c) sums_[c] = load(to[c]);
  }
  template <class T>
  void add(const T* from) {
#pragma omp simd
    for (std::int64_t c = 0; c < n_; ++c) sums_[c] += static_cast<StatsType<D>>(load(from[c]));
  }
  void put() const {
    for (std::int64_t c = 0; c < n_; ++c) store(to_[c], sums_[c]);
  }

 private:
  D* to_ = nullptr;
  std::int64_t n_ = 0;
  StatsType<D> sums_[task_width];
};

/// Adds the rows of equal ids whose first place in sorted order is in [begin, end), `n` columns from `first`. Every
/// element of the table is summed by one task in order of position, so that tasks may be cut in any way.
template <class D, class T>
void add_rows(const Matrix<D>& table, const Matrix<T>& d_out, const std::int32_t* id, const std::int32_t* order,
              VocabRange vocab, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t n) {
  const std::int64_t tokens = d_out.rows;
  std::int64_t i = begin;
  const auto continues = [&] { return i > 0 && i < tokens && id[order[i]] == id[order[i - 1]]; };
  while (i < end && continues()) ++i;  // belongs to the task before
  while (i < end) {
    const std::int64_t row = id[order[i]] - vocab.first;
    if (row < 0 || row >= vocab.valid) {
      ++i;
      continue;
    }
    RowSum<D> sum;
    sum.begin(table.row(row) + first, n);
    do {
      sum.add(d_out.row(order[i++]) + first);
    } while (continues());
    sum.put();
  }
}

constexpr std::int64_t task_rows = 64;  ///< of the table, where ids are not sorted

/// Without sorted ids: rows [begin, end) of the table look through all tokens, `n` columns from `first`.
template <class D, class T>
void gather_rows(const Matrix<D>& table, const Matrix<T>& d_out, const std::int32_t* id, VocabRange vocab,
                 std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t n) {
  RowSum<D> sums[task_rows];
  for (std::int64_t row = begin; row < end; ++row) sums[row - begin].begin(table.row(row) + first, n);
  for (std::int64_t t = 0; t < d_out.rows; ++t) {
    const std::int64_t row = id[t] - vocab.first;
    if (row >= begin && row < end) sums[row - begin].add(d_out.row(t) + first);
  }
  for (std::int64_t row = begin; row < end; ++row) sums[row - begin].put();
}

}  // namespace

void CpuKernels::do_embedding_backward(Stream s, Tensor d_table, Tensor d_out, Tensor ids, Tensor order,
                                       VocabRange vocab, Write write) {
  if (write == Write::overwrite) do_fill(s, d_table, 0);
  const std::int32_t* const id = ids.ptr<std::int32_t>();
  const std::int32_t* const by_id = order ? order.ptr<std::int32_t>() : nullptr;
  constexpr std::int64_t sorted_parts = 16;
  dispatch("embedding_backward", d_out.dtype, [&]<class T>(T) {
    const Matrix<T> from(d_out);
    const std::int64_t tokens = from.rows, cols = from.cols, blocks = (cols + task_width - 1) / task_width;
    const std::int64_t parts = by_id != nullptr ? sorted_parts : (vocab.valid + task_rows - 1) / task_rows;
    dispatch_stored<StatsType<T>>("gradients of an embedding", d_table.dtype, [&]<class D>(D) {
      const Matrix<D> table(d_table);
#pragma omp parallel for collapse(2) schedule(static) if (tokens * cols >= parallel_threshold)
      for (std::int64_t part = 0; part < parts; ++part) {
        for (std::int64_t b = 0; b < blocks; ++b) {
          const std::int64_t first = b * task_width, n = std::min(task_width, cols - first);
          if (by_id != nullptr) {
            add_rows(table, from, id, by_id, vocab, tokens * part / parts, tokens * (part + 1) / parts, first, n);
          } else {
            gather_rows(table, from, id, vocab, part * task_rows, std::min(vocab.valid, (part + 1) * task_rows), first,
                        n);
          }
        }
      }
    });
  });
}

}  // namespace llmtrain
