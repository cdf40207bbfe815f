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

/// Adds the rows of equal ids whose first place in sorted order is in [begin, end), columns [col_begin, col_end). Every
/// element of the table is summed by one task in order of position, so that tasks may be cut in any way.
template <class D, class T>
void add_rows(const Matrix<D>& table, const Matrix<T>& d_out, const std::int32_t* id, const std::int32_t* order,
              VocabRange vocab, std::int64_t begin, std::int64_t end, std::int64_t col_begin, std::int64_t col_end) {
  const std::int64_t tokens = d_out.rows;
  std::int64_t i = begin;
  const auto continues = [&] { return i > 0 && id[order[i]] == id[order[i - 1]]; };
  while (i < end && continues()) ++i;  // belongs to the task before
  if (i == end) return;
  while (i < tokens && (i < end || continues())) {
    const std::int64_t row = id[order[i]] - vocab.first;
    if (row >= 0 && row < vocab.valid) {
      D* const to = table.row(row);
      const T* const from = d_out.row(order[i]);
#pragma omp simd
      for (std::int64_t c = col_begin; c < col_end; ++c) store(to[c], load(to[c]) + static_cast<D>(load(from[c])));
    }
    ++i;
  }
}

/// Without sorted ids: rows [begin, end) of the table look through all tokens, columns [col_begin, col_end).
template <class D, class T>
void gather_rows(const Matrix<D>& table, const Matrix<T>& d_out, const std::int32_t* id, VocabRange vocab,
                 std::int64_t begin, std::int64_t end, std::int64_t col_begin, std::int64_t col_end) {
  for (std::int64_t t = 0; t < d_out.rows; ++t) {
    const std::int64_t row = id[t] - vocab.first;
    if (row < begin || row >= end) continue;
    D* const to = table.row(row);
    const T* const from = d_out.row(t);
#pragma omp simd
    for (std::int64_t c = col_begin; c < col_end; ++c) store(to[c], load(to[c]) + static_cast<D>(load(from[c])));
  }
}

}  // namespace

void CpuKernels::do_embedding_backward(Stream s, Tensor d_table, Tensor d_out, Tensor ids, Tensor order,
                                       VocabRange vocab, Write write) {
  if (write == Write::overwrite) do_fill(s, d_table, 0);
  const std::int32_t* const id = ids.ptr<std::int32_t>();
  const std::int32_t* const by_id = order ? order.ptr<std::int32_t>() : nullptr;
  constexpr std::int64_t width = 64;  // columns of a task; frequent ids are shared by tasks of other columns
  constexpr std::int64_t parts = 16;  // of the sorted tokens, or of the table's rows
  dispatch("embedding_backward", d_out.dtype, [&]<class T>(T) {
    const Matrix<T> from(d_out);
    const Matrix<StatsType<T>> table(d_table);
    const std::int64_t tokens = from.rows, cols = from.cols, blocks = (cols + width - 1) / width;
#pragma omp parallel for collapse(2) schedule(static) if (tokens * cols >= parallel_threshold)
    for (std::int64_t part = 0; part < parts; ++part) {
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t begin = b * width, end = std::min(cols, begin + width);
        const auto cut = [&](std::int64_t n, std::int64_t at) { return n * at / parts; };
        if (by_id != nullptr) {
          add_rows(table, from, id, by_id, vocab, cut(tokens, part), cut(tokens, part + 1), begin, end);
        } else {
          gather_rows(table, from, id, vocab, cut(vocab.valid, part), cut(vocab.valid, part + 1), begin, end);
        }
      }
    }
  });
}

}  // namespace llmtrain
