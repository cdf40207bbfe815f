// SPDX-License-Identifier: Apache-2.0
/// The public side of the elementwise, random and optimizer operations; see kernels.cpp.
#include <algorithm>
#include <vector>

#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/backend/observer.hpp"
#include "operation_check.hpp"

namespace llmtrain {

void Kernels::add(Stream s, Tensor out, Tensor a, Tensor b) {
  const OperationCheck check("add", {{"out", out}, {"a", a}, {"b", b}});
  check.that(out && is_floating(out) && has_dtype(a, out.dtype) && has_dtype(b, out.dtype) && same_matrix(out, a) &&
                 same_matrix(out, b),
             "out, a and b must have one shape and floating dtype");
  note("add", s, {out}, {a, b});
  do_add(s, out, a, b);
}

void Kernels::sum_parts(Stream s, Tensor out, std::span<const Tensor> parts, Write write) {
  LLMTRAIN_CHECK(!parts.empty());
  for (const Tensor& part : parts) {
    const OperationCheck check("sum_parts", {{"out", out}, {"part", part}});
    check.that(out && part && is_floating(out) && out.is_dense() && part.is_dense() && part.numel() == out.numel() &&
                   part.dtype == parts[0].dtype && stats_dtype(part.dtype) == stats_dtype(out.dtype),
               "out and all parts must be floating, dense, of one size and stats dtype, the parts of one dtype");
    const bool early = &part - parts.data() < static_cast<std::ptrdiff_t>(sum_parts_at_once);
    check.that(early || part.data != out.data, "out must not be a part that is read after it was written");
  }
  for (; !parts.empty(); write = Write::accumulate) {
    const std::span<const Tensor> now = parts.first(std::min(parts.size(), sum_parts_at_once));
    std::vector<Tensor> reads(now.begin(), now.end());
    if (write == Write::accumulate) reads.push_back(out);
    note("sum_parts", s, std::span(&out, 1), reads);
    do_sum_parts(s, out, now, write);
    parts = parts.subspan(now.size());
  }
}

void Kernels::quantize(Stream s, Tensor q, Tensor q_transposed, Tensor scale, Tensor x, Scale known) {
  const OperationCheck check("quantize", {{"q", q}, {"q_transposed", q_transposed}, {"scale", scale}, {"x", x}});
  check.that(has_dtype(x, DType::bf16) && has_fp8_extents(x), "x must be bf16, its extents multiples of 16");
  check.that(q || q_transposed, "there must be a result");
  const DType dtype = q ? q.dtype : q_transposed.dtype;
  check.that(is_fp8(dtype) && (!q || (q.is_dense() && same_matrix(q, x))), "q must be fp8, dense, like x");
  check.that(!q_transposed || (q_transposed.dtype == dtype && q_transposed.is_dense() &&
                               is_matrix(q_transposed, x.cols(), x.rows())),
             "q_transposed must be dense [cols, rows] of x, of q's dtype");
  check.that(has_dtype(scale, DType::fp32) && is_vector(scale, 1), "scale must be fp32 [1]");
  if (known == Scale::known) {
    note("quantize", s, {q, q_transposed}, {x, scale});
  } else {
    note("quantize", s, {q, q_transposed, scale}, {x, x});  // read for its largest, and again
  }
  do_quantize(s, q, q_transposed, scale, x, known);
}

void Kernels::convert(Stream s, Tensor destination, Tensor source) {
  const OperationCheck check("convert", {{"destination", destination}, {"source", source}});
  check.that(
      destination && source && is_floating(destination) && is_floating(source) && same_matrix(destination, source),
      "destination and source must be floating and of one shape");
  note("convert", s, {destination}, {source});
  do_convert(s, destination, source);
}

void Kernels::copy(Stream s, Tensor destination, Tensor source) {
  const OperationCheck check("copy", {{"destination", destination}, {"source", source}});
  check.that(destination && has_dtype(source, destination.dtype) && same_matrix(destination, source),
             "destination and source must have one shape and dtype");
  note("copy", s, {destination}, {source});
  do_copy(s, destination, source);
}

void Kernels::fill(Stream s, Tensor destination, double value) {
  const OperationCheck check("fill", {{"destination", destination}});
  check.that(static_cast<bool>(destination), "there must be a destination");
  note("fill", s, {destination}, {});
  do_fill(s, destination, value);
}

void Kernels::init_normal(Stream s, Tensor destination, InitKey key, GlobalBlock block, double stddev) {
  const OperationCheck check("init_normal", {{"destination", destination}});
  const std::int64_t cols = destination.rank == 1 ? destination.rows() : destination.cols();
  check.that((destination.rank == 1 || destination.rank == 2) && is_floating(destination) &&
                 (destination.rank == 2 || destination.is_dense()),
             "destination must be a matrix or a dense vector");
  check.that(block.first_row >= 0 && block.first_col >= 0 && block.first_col + cols <= block.global_cols,
             "destination must lie inside its global matrix");
  note("init_normal", s, {destination}, {});
  do_init_normal(s, destination, key, block, stddev);
}

void Kernels::sum_squares(Stream s, Tensor totals, Tensor x) {
  const OperationCheck check("sum_squares", {{"totals", totals}, {"x", x}});
  check.that(has_dtype(totals, DType::fp64) && is_vector(totals, step_totals_size), "totals must be fp64 [4]");
  check.that(x && is_floating(x) && x.is_dense(), "x must be dense and floating");
  note("sum_squares", s, {totals}, {totals, x});
  do_sum_squares(s, totals, x);
}

void Kernels::step_scalars(Stream s, Tensor scalars, Tensor totals, const StepInputs& inputs) {
  const OperationCheck check("step_scalars", {{"scalars", scalars}, {"totals", totals}});
  check.that(has_dtype(scalars, DType::fp64) && is_vector(scalars, step_scalars_size), "scalars must be fp64 [8]");
  check.that(has_dtype(totals, DType::fp64) && is_vector(totals, step_totals_size), "totals must be fp64 [4]");
  check.that(inputs.step >= 1 && inputs.beta1 >= 0 && inputs.beta1 < 1 && inputs.beta2 >= 0 && inputs.beta2 < 1 &&
                 inputs.clip >= 0,
             "step must be at least 1, betas in [0, 1) and clip not negative");
  note("step_scalars", s, {scalars}, {totals});
  do_step_scalars(s, scalars, totals, inputs);
}

void Kernels::adamw(Stream s, Tensor master, Tensor m, Tensor v, Tensor weights, Tensor gradient, Tensor scalars,
                    const AdamWOptions& options) {
  const OperationCheck check(
      "adamw",
      {{"master", master}, {"m", m}, {"v", v}, {"weights", weights}, {"gradient", gradient}, {"scalars", scalars}});
  check.that(master && (master.dtype == DType::fp32 || master.dtype == DType::fp64) && master.is_dense(),
             "master must be dense fp32 or fp64");
  const std::int64_t n = master.numel();
  check.that(is_floating(m) && has_dtype(v, m.dtype) && is_vector(m, n) && is_vector(v, n),
             "m and v must be of one floating dtype and master's size");
  check.that(!weights || (is_floating(weights) && is_vector(weights, n)), "weights must be of master's size");
  check.that(gradient && is_floating(gradient) && is_vector(gradient, n), "gradient must be of master's size");
  check.that(has_dtype(scalars, DType::fp64) && is_vector(scalars, step_scalars_size), "scalars must be fp64 [8]");
  note("adamw", s, {master, m, v, weights}, {master, m, v, gradient, scalars});
  do_adamw(s, master, m, v, weights, gradient, scalars, options);
}

}  // namespace llmtrain
