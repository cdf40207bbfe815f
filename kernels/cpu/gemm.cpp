// SPDX-License-Identifier: Apache-2.0
/// Matrix products of the CPU back end: shapes of the three forms, and the choice between oneDNN and our own product.
#include "cpu/gemm.hpp"

#include <algorithm>

#include "cpu/simd.hpp"

namespace llmtrain {
namespace {

GemmShape shape_of(GemmForm form, const Tensor& d, const Tensor& a, const Tensor& b) {
  const bool a_transposed = form == GemmForm::tn;
  const bool b_transposed = form == GemmForm::nt;
  const GemmShape shape{d.rows(), d.cols(), a_transposed ? a.rows() : a.cols()};
  LLMTRAIN_CHECK((a_transposed ? a.cols() : a.rows()) == shape.m);
  LLMTRAIN_CHECK((b_transposed ? b.rows() : b.cols()) == shape.n);
  LLMTRAIN_CHECK((b_transposed ? b.cols() : b.rows()) == shape.k);
  return shape;
}

void fill_zero(const Tensor& d) {
  auto* data = static_cast<std::byte*>(d.data);
  for (std::int64_t row = 0; row < d.rows(); ++row) {
    std::byte* begin = data + row * d.leading * size_of(d.dtype);
    std::fill(begin, begin + d.cols() * size_of(d.dtype), std::byte{0});
  }
}

/// Whether oneDNN (2.6.3) is slow in fp32, where ours, which packs whatever the shape, is not. It is at half of its usual
/// rate where it does not copy B (NN with at most 256 rows, the data gradient of small micro-batches) and B's columns have
/// their elements 2 or 4 KiB apart, on AVX2 also where there are many; on AVX2 it is at 40 % where it copies such columns
/// (TN: weight gradients). Elements so far apart share few places of the first cache.
bool is_slow_in_dnnl(GemmForm form, const GemmShape& shape, const Tensor& a, const Tensor& b) {
  constexpr bool avx2 = simd::vector_bytes == 32;
  constexpr std::int64_t far = 2048 / sizeof(float);
  const bool is_far = b.leading % far == 0;
  if (form == GemmForm::nn) return shape.m <= 256 && (is_far || (avx2 && shape.n >= 1536));
  return avx2 && form == GemmForm::tn && shape.k > 256 && (is_far || a.leading % far == 0);
}

}  // namespace

void cpu_gemm(GemmForm form, Tensor d, Tensor a, Tensor b, Write write) {
  const GemmShape shape = shape_of(form, d, a, b);
  LLMTRAIN_CHECK(is_fp8(a.dtype) ||
                 (a.dtype == b.dtype && (d.dtype == a.dtype || (a.dtype == DType::bf16 && d.dtype == DType::fp32))));
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k == 0) {  // an empty sum
    if (write == Write::overwrite) fill_zero(d);
    return;
  }
  switch (a.dtype) {
    case DType::bf16:
      return has_bf16_products() ? gemm_dnnl(form, shape, d, a, b, write) : gemm_tiled(form, shape, d, a, b, write);
    case DType::fp32:
      return is_slow_in_dnnl(form, shape, a, b) ? gemm_tiled(form, shape, d, a, b, write)
                                                : gemm_dnnl(form, shape, d, a, b, write);
    case DType::fp64:
    case DType::fp8_e4m3:
    case DType::fp8_e5m2: return gemm_tiled(form, shape, d, a, b, write);
    default:
      fail(ExitCode::configuration,
           "gemm on the CPU takes fp8, bf16, fp32 or fp64, not {}: set precision.compute to one of these",
           name_of(a.dtype));
  }
}

}  // namespace llmtrain
