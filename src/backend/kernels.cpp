// SPDX-License-Identifier: Apache-2.0
/// The public side of the model's operations: shapes and dtypes checked once, memory ranges and FLOPs noted, work
/// dispatched. Elementwise, random and optimizer operations are in kernels_elementwise.cpp.
#include "llmtrain/backend/kernels.hpp"

#include <algorithm>
#include <array>

#include "llmtrain/backend/gemm_choices.hpp"
#include "llmtrain/backend/observer.hpp"
#include "operation_check.hpp"

namespace llmtrain {

void Kernels::note(const char* name, Stream s, std::span<const Tensor> writes, std::span<const Tensor> reads,
                   double flops, const char* form) {
  if (observer_ == nullptr) return;
  std::array<Tensor, 24> tensors;  // absent optional tensors are left out
  LLMTRAIN_CHECK(writes.size() + reads.size() <= tensors.size());
  const auto present = [](const Tensor& t) { return static_cast<bool>(t); };
  Tensor* const begin = tensors.data();
  Tensor* const middle = std::copy_if(writes.begin(), writes.end(), begin, present);
  Tensor* const end = std::copy_if(reads.begin(), reads.end(), middle, present);
  observer_->on_operation(
      {name, s, std::span<const Tensor>(begin, middle), std::span<const Tensor>(middle, end), flops, form});
}

const char* name_of(GemmForm form) {
  switch (form) {
    case GemmForm::nn: return "nn";
    case GemmForm::nt: return "nt";
    case GemmForm::tn: return "tn";
  }
  return "";
}

namespace {

bool is_scaled_fp8(const Tensor& t) {
  return is_fp8(t.dtype) && t.scale != nullptr && t.is_dense() && has_fp8_extents(t);
}

bool divides(std::int64_t divisor, std::int64_t n) { return divisor > 0 && n % divisor == 0; }

/// Pairs (query, visible key) of one head, document masks not counted.
double attention_pairs(const AttentionOptions& options) {
  const double n = static_cast<double>(options.shape.sequence);
  const double w = options.window == 0 ? n : std::min(n, static_cast<double>(options.window));
  return static_cast<double>(options.shape.batch) * (w * (w + 1) / 2 + (n - w) * w);
}

double attention_flops(const AttentionOptions& options) {
  const AttentionShape& a = options.shape;
  return 4.0 * static_cast<double>(a.heads) * static_cast<double>(a.head_dim) * attention_pairs(options);
}

void check_attention_shape(const OperationCheck& check, const AttentionOptions& options, const Tensor& starts) {
  const AttentionShape& a = options.shape;
  check.that(a.batch >= 0 && a.sequence >= 0 && a.heads > 0 && a.kv_heads > 0 && a.head_dim > 0 &&
                 a.heads % a.kv_heads == 0 && options.window >= 0 && options.soft_cap >= 0,
             "sizes must be positive and kv_heads must divide heads");
  check.that(!starts || (starts.dtype == DType::int32 && is_vector(starts, a.batch * a.sequence)),
             "starts must be int32 [tokens]");
  check.that(!starts || (options.documents >= a.batch && options.documents <= a.batch * a.sequence),
             "documents must be at least the sequences and at most the tokens");
}

/// x must be [tokens, heads, head_dim] of the same dtype as q.
bool is_heads(const Tensor& x, const Tensor& q, const AttentionShape& shape, std::int64_t heads) {
  return has_dtype(x, q.dtype) && is_matrix(x, shape.batch * shape.sequence, heads * shape.head_dim);
}

bool is_lse(const Tensor& lse, const Tensor& q, const AttentionShape& shape) {
  return has_dtype(lse, stats_dtype(q.dtype)) && is_matrix(lse, shape.heads, shape.batch * shape.sequence);
}

void check_logits(const OperationCheck& check, const Tensor& stats, const Tensor& logits, const Tensor& targets,
                  VocabRange vocab) {
  check.that(logits && is_floating(logits) && has_dtype(stats, stats_dtype(logits.dtype)) &&
                 is_matrix(stats, 3, logits.rows()),
             "stats must be stats dtype [3, tokens]");
  check.that(has_dtype(targets, DType::int32) && is_vector(targets, logits.rows()), "targets must be int32 [tokens]");
  check.that(vocab.valid >= 0 && vocab.valid <= logits.cols(), "logits must hold every valid column");
}

void check_weighted_logits(const OperationCheck& check, const Tensor& stats, const Tensor& logits,
                           const Tensor& targets, const Tensor& weights, VocabRange vocab) {
  check_logits(check, stats, logits, targets, vocab);
  check.that(has_dtype(weights, DType::fp32) && is_vector(weights, logits.rows()), "weights must be fp32 [tokens]");
}

}  // namespace

void Kernels::gemm(Stream s, GemmForm form, Tensor d, Tensor a, Tensor b, Write write, Tensor bias) {
  const OperationCheck check("gemm", {{"d", d}, {"a", a}, {"b", b}, {"bias", bias}});
  if (is_fp8(a.dtype)) {
    check.that(d && is_scaled_fp8(a) && is_scaled_fp8(b) && b.dtype == DType::fp8_e4m3 && form == GemmForm::nt &&
                   holds_sums_of(d, DType::bf16) && !bias,
               "fp8 factors must be dense, scaled, of extents that are multiples of 16, b in E4M3, of form nt into "
               "bf16 or fp32 without bias");
  } else {
    check.that(d && a && b && is_floating(a) && b.dtype == a.dtype && holds_sums_of(d, a.dtype),
               "a and b must share a floating dtype, and d have it or its stats dtype");
  }
  const std::int64_t m = d.rows(), n = d.cols(), k = form == GemmForm::tn ? a.rows() : a.cols();
  check.that(form == GemmForm::tn ? is_matrix(a, k, m) : is_matrix(a, m, k), "a does not fit d's rows");
  check.that(form == GemmForm::nt ? is_matrix(b, n, k) : is_matrix(b, k, n), "b does not fit d's columns and a");
  check.that(!bias || (has_dtype(bias, d.dtype) && is_vector(bias, n) && write == Write::overwrite),
             "bias must be [n] of d's dtype, and d be overwritten");
  note("gemm", s, {d}, {a, b, bias, a.scale_tensor(), b.scale_tensor(), read_if(write, d)}, product_flops(m, n, k),
       name_of(form));
  do_gemm(s, form, d, a, b, write, bias);
}

bool Kernels::is_gelu_of_products(const Tensor& x, Gelu form) {
  const auto address = reinterpret_cast<std::uintptr_t>(x.data);
  return form == Gelu::tanh && x.dtype == DType::bf16 && address % 16 == 0 && x.leading % 8 == 0;
}

void Kernels::gemm_gelu_forward(Stream s, Tensor out, Tensor x, Tensor a, Tensor b, Tensor bias, Gelu form) {
  if (!fuses_gelu(x, form)) {
    gemm(s, GemmForm::nt, x, a, b, Write::overwrite, bias);
    return gelu_forward(s, out, x, form);
  }
  const OperationCheck check("gemm_gelu_forward", {{"out", out}, {"x", x}, {"a", a}, {"b", b}, {"bias", bias}});
  const std::int64_t m = x.rows(), n = x.cols(), k = a.cols();
  check.that(has_dtype(a, x.dtype) && has_dtype(b, x.dtype) && has_dtype(out, x.dtype) && is_matrix(a, m, k) &&
                 is_matrix(b, n, k) && is_matrix(out, m, n) &&
                 (!bias || (has_dtype(bias, x.dtype) && is_vector(bias, n))),
             "x and out must be a b^T, bias [n], all of one dtype");
  note("gemm", s, {x, out}, {a, b, bias}, product_flops(m, n, k), "nt gelu");
  do_gemm_gelu_forward(s, out, x, a, b, bias);
}

void Kernels::gemm_gelu_backward(Stream s, Tensor d_x, Tensor d_y, Tensor b, Tensor x, Gelu form) {
  if (!fuses_gelu(x, form)) {
    gemm(s, GemmForm::nn, d_x, d_y, b);
    return gelu_backward(s, d_x, d_x, x, form);
  }
  const OperationCheck check("gemm_gelu_backward", {{"d_x", d_x}, {"d_y", d_y}, {"b", b}, {"x", x}});
  const std::int64_t m = x.rows(), n = x.cols(), k = d_y.cols();
  check.that(has_dtype(d_x, x.dtype) && has_dtype(d_y, x.dtype) && has_dtype(b, x.dtype) && is_matrix(d_y, m, k) &&
                 is_matrix(b, k, n) && is_matrix(d_x, m, n),
             "d_x must be like x, and both like d_y b");
  note("gemm", s, {d_x}, {d_y, b, x}, product_flops(m, n, k), "nn gelu");
  do_gemm_gelu_backward(s, d_x, d_y, b, x);
}

void Kernels::embedding_forward(Stream s, Tensor out, Tensor ids, Tensor table, VocabRange vocab, Write write) {
  const OperationCheck check("embedding_forward", {{"out", out}, {"ids", ids}, {"table", table}});
  check.that(is_floating(table) && has_dtype(out, table.dtype) && out.cols() == table.cols(),
             "out must be rows of the table");
  check.that(has_dtype(ids, DType::int32) && is_vector(ids, out.rows()), "ids must be int32 [tokens]");
  check.that(vocab.valid >= 0 && vocab.valid <= table.rows(), "the table must hold every valid row");
  note("embedding_forward", s, {out}, {ids, table, read_if(write, out)});
  do_embedding_forward(s, out, ids, table, vocab, write);
}

void Kernels::embedding_backward(Stream s, Tensor d_table, Tensor d_out, Tensor ids, Tensor order, VocabRange vocab,
                                 Write write) {
  const OperationCheck check("embedding_backward",
                             {{"d_table", d_table}, {"d_out", d_out}, {"ids", ids}, {"order", order}});
  check.that(
      d_table && d_out && is_floating(d_out) && holds_sums_of(d_table, d_out.dtype) && d_table.cols() == d_out.cols(),
      "d_table must hold sums of d_out's rows");
  check.that(has_dtype(ids, DType::int32) && is_vector(ids, d_out.rows()), "ids must be int32 [tokens]");
  check.that(!order || (has_dtype(order, DType::int32) && is_vector(order, d_out.rows())),
             "order must be int32 [tokens]");
  check.that(vocab.valid >= 0 && vocab.valid <= d_table.rows(), "the table must hold every valid row");
  note("embedding_backward", s, {d_table}, {d_out, ids, order, read_if(write, d_table)});
  do_embedding_backward(s, d_table, d_out, ids, order, vocab, write);
}

void Kernels::rms_norm_forward(Stream s, Tensor y, Tensor residual, Tensor rstd, Tensor x, Tensor delta, Tensor weight,
                               double eps) {
  const OperationCheck check(
      "rms_norm_forward",
      {{"y", y}, {"residual", residual}, {"rstd", rstd}, {"x", x}, {"delta", delta}, {"weight", weight}});
  check.that(x && is_floating(x) && has_dtype(y, x.dtype) && same_matrix(y, x), "y must be like x");
  check.that(!delta || (has_dtype(delta, x.dtype) && same_matrix(delta, x) && has_dtype(residual, x.dtype) &&
                        same_matrix(residual, x)),
             "delta and, with it, residual must be like x");
  check.that(has_dtype(weight, x.dtype) && weight.is_dense() && divides(weight.numel(), x.cols()),
             "weight must be [cols of x] or [cols of a head]");
  check.that(has_dtype(rstd, stats_dtype(x.dtype)) && is_vector(rstd, x.numel() / weight.numel()),
             "rstd must be stats [normalised rows]");
  note("rms_norm_forward", s, {y, delta ? residual : Tensor{}, rstd}, {x, delta, weight});
  do_rms_norm_forward(s, y, residual, rstd, x, delta, weight, eps);
}

void Kernels::rms_norm_backward(Stream s, Tensor d_x, Tensor d_weight, Tensor d_residual, Tensor d_y, Tensor x,
                                Tensor rstd, Tensor weight, Write write, Tensor workspace) {
  const OperationCheck check("rms_norm_backward", {{"d_x", d_x},
                                                   {"d_weight", d_weight},
                                                   {"d_residual", d_residual},
                                                   {"d_y", d_y},
                                                   {"x", x},
                                                   {"rstd", rstd},
                                                   {"weight", weight},
                                                   {"workspace", workspace}});
  check.that(x && is_floating(x) && has_dtype(d_x, x.dtype) && same_matrix(d_x, x) && has_dtype(d_y, x.dtype) &&
                 same_matrix(d_y, x),
             "d_x and d_y must be like x");
  check.that(!d_residual || (has_dtype(d_residual, x.dtype) && same_matrix(d_residual, x)),
             "d_residual must be like x");
  check.that(has_dtype(weight, x.dtype) && weight.is_dense() && divides(weight.numel(), x.cols()),
             "weight must be [cols of x] or [cols of a head]");
  const DType stats = stats_dtype(x.dtype);
  check.that(holds_sums_of(d_weight, x.dtype) && is_vector(d_weight, weight.numel()),
             "d_weight must hold sums, as weight");
  check.that(has_dtype(rstd, stats) && is_vector(rstd, x.numel() / weight.numel()),
             "rstd must be stats [normalised rows]");
  check.that(is_workspace(workspace), "workspace must be dense uint8");
  note("rms_norm_backward", s, {d_x, d_weight, workspace},
       {d_residual, d_y, x, rstd, weight, read_if(write, d_weight)});
  do_rms_norm_backward(s, d_x, d_weight, d_residual, d_y, x, rstd, weight, write, workspace);
}

void Kernels::rope(Stream s, Tensor x, Tensor table, Tensor positions, Rotation direction) {
  const OperationCheck check("rope", {{"x", x}, {"table", table}, {"positions", positions}});
  check.that(x.rank == 3 && is_floating(x) && x.extent[2] % 2 == 0, "x must be [tokens, heads, even head_dim]");
  check.that(has_dtype(table, stats_dtype(x.dtype)) && table.is_dense() && table.cols() == x.extent[2],
             "table must be dense stats [positions, head_dim / 2, 2]");
  check.that(has_dtype(positions, DType::int32) && is_vector(positions, x.rows()), "positions must be int32 [tokens]");
  note("rope", s, {x}, {x, table, positions});
  do_rope(s, x, table, positions, direction);
}

void Kernels::attention_forward(Stream s, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor starts,
                                const AttentionOptions& options) {
  const OperationCheck check("attention_forward",
                             {{"out", out}, {"lse", lse}, {"q", q}, {"k", k}, {"v", v}, {"starts", starts}});
  const AttentionShape& a = options.shape;
  check_attention_shape(check, options, starts);
  check.that(q && is_floating(q) && is_heads(q, q, a, a.heads) && is_heads(out, q, a, a.heads),
             "q and out must be [tokens, heads, head_dim]");
  check.that(is_heads(k, q, a, a.kv_heads) && is_heads(v, q, a, a.kv_heads),
             "k and v must be [tokens, kv_heads, head_dim]");
  check.that(is_lse(lse, q, a), "lse must be stats [heads, tokens]");
  note("attention_forward", s, {out, lse}, {q, k, v, starts}, attention_flops(options));
  do_attention_forward(s, out, lse, q, k, v, starts, options);
}

void Kernels::attention_backward(Stream s, Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_out, Tensor q, Tensor k,
                                 Tensor v, Tensor out, Tensor lse, Tensor starts, const AttentionOptions& options,
                                 Tensor workspace) {
  const OperationCheck check("attention_backward", {{"d_q", d_q},
                                                    {"d_k", d_k},
                                                    {"d_v", d_v},
                                                    {"d_out", d_out},
                                                    {"q", q},
                                                    {"k", k},
                                                    {"v", v},
                                                    {"out", out},
                                                    {"lse", lse},
                                                    {"starts", starts},
                                                    {"workspace", workspace}});
  const AttentionShape& a = options.shape;
  check_attention_shape(check, options, starts);
  check.that(q && is_floating(q) && is_heads(q, q, a, a.heads) && is_heads(d_q, q, a, a.heads) &&
                 is_heads(out, q, a, a.heads) && is_heads(d_out, q, a, a.heads),
             "q, out and their gradients must be [tokens, heads, head_dim]");
  check.that(is_heads(k, q, a, a.kv_heads) && is_heads(v, q, a, a.kv_heads) && is_heads(d_k, q, a, a.kv_heads) &&
                 is_heads(d_v, q, a, a.kv_heads),
             "k, v and their gradients must be [tokens, kv_heads, head_dim]");
  check.that(is_lse(lse, q, a), "lse must be stats [heads, tokens]");
  check.that(is_workspace(workspace), "workspace must be dense uint8");
  note("attention_backward", s, {d_q, d_k, d_v, workspace}, {d_out, q, k, v, out, lse, starts},
       2.5 * attention_flops(options));
  do_attention_backward(s, d_q, d_k, d_v, d_out, q, k, v, out, lse, starts, options, workspace);
}

void Kernels::swiglu_forward(Stream s, Tensor out, Tensor gate_up) {
  const OperationCheck check("swiglu_forward", {{"out", out}, {"gate_up", gate_up}});
  check.that(out && is_floating(out) && has_dtype(gate_up, out.dtype) && is_matrix(gate_up, out.rows(), 2 * out.cols()),
             "gate_up must be [tokens, 2 n] for out [tokens, n]");
  note("swiglu_forward", s, {out}, {gate_up});
  do_swiglu_forward(s, out, gate_up);
}

void Kernels::swiglu_backward(Stream s, Tensor d_gate_up, Tensor d_out, Tensor gate_up) {
  const OperationCheck check("swiglu_backward", {{"d_gate_up", d_gate_up}, {"d_out", d_out}, {"gate_up", gate_up}});
  check.that(d_out && is_floating(d_out) && has_dtype(gate_up, d_out.dtype) && has_dtype(d_gate_up, d_out.dtype) &&
                 is_matrix(gate_up, d_out.rows(), 2 * d_out.cols()) && same_matrix(d_gate_up, gate_up),
             "gate_up and d_gate_up must be [tokens, 2 n] for d_out [tokens, n]");
  note("swiglu_backward", s, {d_gate_up}, {d_out, gate_up});
  do_swiglu_backward(s, d_gate_up, d_out, gate_up);
}

void Kernels::cross_entropy_stats(Stream s, Tensor stats, Tensor logits, Tensor targets, VocabRange vocab) {
  const OperationCheck check("cross_entropy_stats", {{"stats", stats}, {"logits", logits}, {"targets", targets}});
  check_logits(check, stats, logits, targets, vocab);
  note("cross_entropy_stats", s, {stats}, {logits, targets});
  do_cross_entropy_stats(s, stats, logits, targets, vocab);
}

void Kernels::cross_entropy_merge(Stream s, Tensor stats, Tensor parts) {
  const OperationCheck check("cross_entropy_merge", {{"stats", stats}, {"parts", parts}});
  check.that(stats && (stats.dtype == DType::fp32 || stats.dtype == DType::fp64) && stats.rows() == 3,
             "stats must be fp32 or fp64 [3, tokens]");
  check.that(has_dtype(parts, stats.dtype) && parts.is_dense() && parts.rank == 3 && parts.extent[1] == 3 &&
                 parts.extent[2] == stats.cols(),
             "parts must be dense [ranks, 3, tokens], like stats");
  note("cross_entropy_merge", s, {stats}, {parts});
  do_cross_entropy_merge(s, stats, parts);
}

void Kernels::cross_entropy_loss(Stream s, Tensor totals, Tensor stats, Tensor weights) {
  const OperationCheck check("cross_entropy_loss", {{"totals", totals}, {"stats", stats}, {"weights", weights}});
  check.that(has_dtype(totals, DType::fp64) && is_vector(totals, step_totals_size), "totals must be fp64 [4]");
  check.that(stats && (stats.dtype == DType::fp32 || stats.dtype == DType::fp64) && stats.rows() == 3,
             "stats must be fp32 or fp64 [3, tokens]");
  check.that(has_dtype(weights, DType::fp32) && is_vector(weights, stats.cols()), "weights must be fp32 [tokens]");
  note("cross_entropy_loss", s, {totals}, {totals, stats, weights});
  do_cross_entropy_loss(s, totals, stats, weights);
}

void Kernels::cross_entropy_gradient(Stream s, Tensor logits, Tensor stats, Tensor targets, Tensor weights,
                                     VocabRange vocab) {
  const OperationCheck check("cross_entropy_gradient",
                             {{"logits", logits}, {"stats", stats}, {"targets", targets}, {"weights", weights}});
  check_weighted_logits(check, stats, logits, targets, weights, vocab);
  note("cross_entropy_gradient", s, {logits}, {logits, stats, targets, weights});
  do_cross_entropy_gradient(s, logits, stats, targets, weights, vocab);
}

void Kernels::cross_entropy_with_gradient(Stream s, Tensor stats, Tensor logits, Tensor targets, Tensor weights,
                                          VocabRange vocab) {
  const OperationCheck check("cross_entropy_with_gradient",
                             {{"stats", stats}, {"logits", logits}, {"targets", targets}, {"weights", weights}});
  check_weighted_logits(check, stats, logits, targets, weights, vocab);
  note("cross_entropy_with_gradient", s, {logits, stats}, {logits, targets, weights});
  do_cross_entropy_with_gradient(s, stats, logits, targets, weights, vocab);
}

}  // namespace llmtrain
