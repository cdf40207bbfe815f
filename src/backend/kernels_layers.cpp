// SPDX-License-Identifier: Apache-2.0
/// The public side of LayerNorm, GeLU, biases and dropout; see kernels.cpp.
#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/backend/observer.hpp"
#include "operation_check.hpp"

namespace llmtrain {

namespace {

/// A matrix of x's shape and dtype.
bool is_like(const Tensor& t, const Tensor& x) { return has_dtype(t, x.dtype) && same_matrix(t, x); }

bool is_bias(const Tensor& bias, const Tensor& x) { return has_dtype(bias, x.dtype) && is_vector(bias, x.cols()); }

void check_dropout(const OperationCheck& check, const Tensor& x, const Tensor& samples, const DropoutKey& key) {
  check.that(key.probability >= 0 && key.probability < 1 && key.operation >= 0 && key.operation < 65536,
             "the probability must be in [0, 1) and the operation's number below 2^16");
  check.that(has_dtype(samples, DType::int64) && samples.is_dense() && key.sequence > 0 && key.first_token >= 0 &&
                 key.first_token + x.rows() <= samples.numel() * key.sequence,
             "samples must be int64 and name every sequence of the rows");
}

}  // namespace

void Kernels::layer_norm_forward(Stream s, Tensor y, Tensor residual, Tensor mean, Tensor rstd, Tensor x, Tensor delta,
                                 Tensor weight, Tensor bias, double eps) {
  const OperationCheck check("layer_norm_forward", {{"y", y},
                                                    {"residual", residual},
                                                    {"mean", mean},
                                                    {"rstd", rstd},
                                                    {"x", x},
                                                    {"delta", delta},
                                                    {"weight", weight},
                                                    {"bias", bias}});
  check.that(x && is_floating(x) && is_like(y, x), "y must be like x");
  check.that(!delta || (is_like(delta, x) && is_like(residual, x)), "delta and, with it, residual must be like x");
  check.that(is_bias(weight, x) && is_bias(bias, x), "weight and bias must be [cols of x]");
  const DType stats = stats_dtype(x.dtype);
  check.that(has_dtype(mean, stats) && is_vector(mean, x.rows()) && has_dtype(rstd, stats) && is_vector(rstd, x.rows()),
             "mean and rstd must be stats [tokens]");
  note("layer_norm_forward", s, {y, delta ? residual : Tensor{}, mean, rstd}, {x, delta, weight, bias});
  do_layer_norm_forward(s, y, residual, mean, rstd, x, delta, weight, bias, eps);
}

void Kernels::layer_norm_backward(Stream s, Tensor d_x, Tensor d_weight, Tensor d_bias, Tensor d_residual, Tensor d_y,
                                  Tensor x, Tensor mean, Tensor rstd, Tensor weight, Write write, Tensor workspace) {
  const OperationCheck check("layer_norm_backward", {{"d_x", d_x},
                                                     {"d_weight", d_weight},
                                                     {"d_bias", d_bias},
                                                     {"d_residual", d_residual},
                                                     {"d_y", d_y},
                                                     {"x", x},
                                                     {"mean", mean},
                                                     {"rstd", rstd},
                                                     {"weight", weight},
                                                     {"workspace", workspace}});
  check.that(x && is_floating(x) && is_like(d_x, x) && is_like(d_y, x), "d_x and d_y must be like x");
  check.that(!d_residual || is_like(d_residual, x), "d_residual must be like x");
  check.that(is_bias(weight, x), "weight must be [cols of x]");
  const DType stats = stats_dtype(x.dtype);
  check.that(holds_sums_of(d_weight, x.dtype) && is_vector(d_weight, x.cols()) && holds_sums_of(d_bias, x.dtype) &&
                 is_vector(d_bias, x.cols()),
             "d_weight and d_bias must hold sums [cols of x]");
  check.that(has_dtype(mean, stats) && is_vector(mean, x.rows()) && has_dtype(rstd, stats) && is_vector(rstd, x.rows()),
             "mean and rstd must be stats [tokens]");
  check.that(is_workspace(workspace), "workspace must be dense uint8");
  note("layer_norm_backward", s, {d_x, d_weight, d_bias, workspace},
       {d_residual, d_y, x, mean, rstd, weight, read_if(write, d_weight), read_if(write, d_bias)});
  do_layer_norm_backward(s, d_x, d_weight, d_bias, d_residual, d_y, x, mean, rstd, weight, write, workspace);
}

void Kernels::gelu_forward(Stream s, Tensor out, Tensor x, Gelu form) {
  const OperationCheck check("gelu_forward", {{"out", out}, {"x", x}});
  check.that(x && is_floating(x) && is_like(out, x), "out must be like x");
  note("gelu_forward", s, {out}, {x});
  do_gelu_forward(s, out, x, form);
}

void Kernels::gelu_backward(Stream s, Tensor d_x, Tensor d_out, Tensor x, Gelu form) {
  const OperationCheck check("gelu_backward", {{"d_x", d_x}, {"d_out", d_out}, {"x", x}});
  check.that(x && is_floating(x) && is_like(d_x, x) && is_like(d_out, x), "d_x and d_out must be like x");
  note("gelu_backward", s, {d_x}, {d_out, x});
  do_gelu_backward(s, d_x, d_out, x, form);
}

void Kernels::bias_add(Stream s, Tensor out, Tensor x, Tensor bias) {
  const OperationCheck check("bias_add", {{"out", out}, {"x", x}, {"bias", bias}});
  check.that(x && is_floating(x) && is_like(out, x), "out must be like x");
  check.that(is_bias(bias, x), "bias must be [cols of x]");
  note("bias_add", s, {out}, {x, bias});
  do_bias_add(s, out, x, bias);
}

void Kernels::bias_gradient(Stream s, Tensor d_bias, Tensor d_out, Write write) {
  const OperationCheck check("bias_gradient", {{"d_bias", d_bias}, {"d_out", d_out}});
  check.that(d_out && is_floating(d_out) && holds_sums_of(d_bias, d_out.dtype) && is_vector(d_bias, d_out.cols()),
             "d_bias must hold sums [cols of d_out]");
  note("bias_gradient", s, {d_bias}, {d_out, read_if(write, d_bias)});
  do_bias_gradient(s, d_bias, d_out, write);
}

void Kernels::bias_dropout(Stream s, Tensor out, Tensor x, Tensor bias, Tensor samples, const DropoutKey& key) {
  const OperationCheck check("bias_dropout", {{"out", out}, {"x", x}, {"bias", bias}, {"samples", samples}});
  check.that(x && is_floating(x) && is_like(out, x), "out must be like x");
  check.that(!bias || is_bias(bias, x), "bias must be [cols of x]");
  check_dropout(check, x, samples, key);
  note("bias_dropout", s, {out}, {x, bias, samples});
  do_bias_dropout(s, out, x, bias, samples, key);
}

void Kernels::dropout_backward(Stream s, Tensor d_x, Tensor d_out, Tensor samples, const DropoutKey& key) {
  const OperationCheck check("dropout_backward", {{"d_x", d_x}, {"d_out", d_out}, {"samples", samples}});
  check.that(d_out && is_floating(d_out) && is_like(d_x, d_out), "d_x must be like d_out");
  check_dropout(check, d_out, samples, key);
  note("dropout_backward", s, {d_x}, {d_out, samples});
  do_dropout_backward(s, d_x, d_out, samples, key);
}

}  // namespace llmtrain
