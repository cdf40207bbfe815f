// SPDX-License-Identifier: Apache-2.0
/// bf16 matrix products on processors that have none: panels of A and B are widened to fp32 and multiplied by the fp32
/// product. Sums stay in fp32 over the whole of k and are rounded once.
#include <algorithm>
#include <memory>

#include "cpu/gemm.hpp"
#include "cpu/loops.hpp"

namespace llmtrain {
namespace {

/// Extents of panels: an element is widened once every `block` multiply-adds, and three panels of fp32 take 12 MiB.
constexpr std::int64_t block = 1024;

/// Rows [row, row + rows) and columns [col, col + cols) of a matrix.
Tensor part(const Tensor& x, std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t cols) {
  return x.rows_at(row, rows).cols_at(col, cols);
}

/// fp32 memory of one panel, kept by the thread that calls.
class Panel {
 public:
  /// A dense [rows, cols] tensor over it, not initialised.
  Tensor take(std::int64_t rows, std::int64_t cols) {
    if (rows * cols > size_) {
      size_ = rows * cols;
      data_ = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(size_));
    }
    return Tensor::dense(data_.get(), DType::fp32, {rows, cols});
  }
  Tensor widened(const Tensor& x) {
    const Tensor to = take(x.rows(), x.cols());
    const Matrix<float> out(to);
    const Matrix<Bf16> in(x);
    for_blocks({to, x}, [&](std::int64_t r, std::int64_t begin, std::int64_t end) {
      float* const out_row = out.row(r);
      const Bf16* const in_row = in.row(r);
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) out_row[i] = load(in_row[i]);
    });
    return to;
  }

 private:
  std::unique_ptr<float[]> data_;
  std::int64_t size_ = 0;
};

/// d (+)= sums, rounded to bf16.
void round_into(const Tensor& d, const Tensor& sums, bool accumulate) {
  const Matrix<Bf16> out(d);
  const Matrix<float> in(sums);
  for_blocks({d, sums}, [&](std::int64_t r, std::int64_t begin, std::int64_t end) {
    Bf16* const out_row = out.row(r);
    const float* const in_row = in.row(r);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      store(out_row[i], accumulate ? load(out_row[i]) + in_row[i] : in_row[i]);
    }
  });
}

struct Panels {
  Panel a, b, d;
};

/// One block of D, summed over all of k.
void multiply_block(Panels& panels, GemmForm form, GemmShape at, GemmShape size, std::int64_t k_total, const Tensor& d,
                    const Tensor& a, const Tensor& b, Write write) {
  const Tensor target = part(d, at.m, at.n, size.m, size.n);
  const bool narrow = d.dtype == DType::bf16;
  const Tensor sums = narrow ? panels.d.take(size.m, size.n) : target;
  for (std::int64_t k = 0; k < k_total; k += block) {
    const std::int64_t depth = std::min(block, k_total - k);
    const Tensor left =
        panels.a.widened(form == GemmForm::tn ? part(a, k, at.m, depth, size.m) : part(a, at.m, k, size.m, depth));
    const Tensor right =
        panels.b.widened(form == GemmForm::nt ? part(b, at.n, k, size.n, depth) : part(b, k, at.n, depth, size.n));
    const bool first = k == 0 && (narrow || write == Write::overwrite);
    gemm_dnnl(form, {size.m, size.n, depth}, sums, left, right, first ? Write::overwrite : Write::accumulate);
  }
  if (narrow) round_into(target, sums, write == Write::accumulate);
}

}  // namespace

void gemm_by_panels(GemmForm form, GemmShape shape, Tensor d, Tensor a, Tensor b, Write write) {
  thread_local Panels panels;
  for (std::int64_t m = 0; m < shape.m; m += block) {
    for (std::int64_t n = 0; n < shape.n; n += block) {
      const GemmShape size{std::min(block, shape.m - m), std::min(block, shape.n - n), 0};
      multiply_block(panels, form, {m, n, 0}, size, shape.k, d, a, b, write);
    }
  }
}

}  // namespace llmtrain
