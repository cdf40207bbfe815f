// SPDX-License-Identifier: Apache-2.0
/// Every operation on aligned tensors of the widths of real models, where kernels take their fast paths, against the CPU's
/// kernels in fp64 on the same numbers.
#include <algorithm>
#include <numeric>

#include "llmtrain/backend/workspace.hpp"
#include "pair.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

Buffer<std::int32_t> sorted_order(const Buffer<std::int32_t>& ids) {
  std::vector<std::int32_t> p(static_cast<std::size_t>(ids.numel()));
  std::iota(p.begin(), p.end(), 0);
  std::stable_sort(p.begin(), p.end(), [&](int a, int b) { return ids.at(a) < ids.at(b); });
  Buffer<std::int32_t> order({ids.numel()});
  for (std::int64_t i = 0; i < ids.numel(); ++i) order.at(i) = p[static_cast<std::size_t>(i)];
  return order;
}

constexpr double eps = 1e-5;

}  // namespace

TEST_CASE_TEMPLATE("norms of model widths", T, Bf16, float) {
  Random random(1);
  using S = StatsOf<T>;
  for (const std::int64_t cols : {64, 256, 768, 1600, 2048, 3584, 4096, 8192}) {
    // as many rows as let the blocks of a gradient's kernel go round more than once
    const std::int64_t rows = std::max<std::int64_t>(301, (1 << 21) / cols), gap = cols == 768 ? 16 : 0;
    INFO("cols ", cols);
    const auto matrix = [&] { return Pair<T>::random(random, {rows, cols}, cols + gap); };
    auto x = matrix(), delta = matrix(), d_y = matrix(), through = matrix();
    auto w = Pair<T>::random(random, {cols}, 0, 0.5, 1), b = Pair<T>::random(random, {cols});
    Pair<T> y({rows, cols}, cols + gap), residual({rows, cols}), d_x({rows, cols}, cols + gap);
    Pair<S> mean({rows}), rstd({rows}), d_w({cols}), d_b({cols});
    auto own = space(layer_norm_backward_workspace(device_kind(), rows, cols, dtype_of<S>));
    auto theirs = space(layer_norm_backward_workspace(DeviceKind::cpu, rows, cols, DType::fp64));

    kernels().rms_norm_forward(stream, y.tested.tensor(), residual.tested.tensor(), rstd.tested.tensor(),
                               x.tested.tensor(), delta.tested.tensor(), w.tested.tensor(), eps);
    for (std::int64_t i = 0; i < residual.tested.numel(); ++i) {  // the sum as stored is what both go on with
      residual.exact.flat(i) = static_cast<double>(residual.tested.flat(i));
    }
    reference().rms_norm_forward(stream, y.exact.tensor(), {}, rstd.exact.tensor(), residual.exact.tensor(), {},
                                 w.exact.tensor(), eps);
    y.check("rms y", tolerance<T>);
    rstd.check("rms rstd", tolerance<S>);
    kernels().rms_norm_backward(stream, d_x.tested.tensor(), d_w.tested.tensor(), through.tested.tensor(),
                                d_y.tested.tensor(), residual.tested.tensor(), rstd.tested.tensor(), w.tested.tensor(),
                                Write::overwrite, own.tensor());
    reference().rms_norm_backward(stream, d_x.exact.tensor(), d_w.exact.tensor(), through.exact.tensor(),
                                  d_y.exact.tensor(), residual.exact.tensor(), rstd.exact.tensor(), w.exact.tensor(),
                                  Write::overwrite, theirs.tensor());
    d_x.check("rms d_x", tolerance<T>);
    d_w.check("rms d_w", tolerance<S>);

    kernels().layer_norm_forward(stream, y.tested.tensor(), residual.tested.tensor(), mean.tested.tensor(),
                                 rstd.tested.tensor(), x.tested.tensor(), delta.tested.tensor(), w.tested.tensor(),
                                 b.tested.tensor(), eps);
    reference().layer_norm_forward(stream, y.exact.tensor(), {}, mean.exact.tensor(), rstd.exact.tensor(),
                                   residual.exact.tensor(), {}, w.exact.tensor(), b.exact.tensor(), eps);
    y.check("layer y", tolerance<T>);
    mean.check("mean", tolerance<S>);
    rstd.check("rstd", tolerance<S>);
    kernels().layer_norm_backward(stream, d_x.tested.tensor(), d_w.tested.tensor(), d_b.tested.tensor(),
                                  through.tested.tensor(), d_y.tested.tensor(), residual.tested.tensor(),
                                  mean.tested.tensor(), rstd.tested.tensor(), w.tested.tensor(), Write::accumulate,
                                  own.tensor());
    reference().layer_norm_backward(stream, d_x.exact.tensor(), d_w.exact.tensor(), d_b.exact.tensor(),
                                    through.exact.tensor(), d_y.exact.tensor(), residual.exact.tensor(),
                                    mean.exact.tensor(), rstd.exact.tensor(), w.exact.tensor(), Write::overwrite,
                                    theirs.tensor());
    d_x.check("layer d_x", tolerance<T>);
    CHECK(std::isnan(d_b.tested.at(0)));  // accumulated onto poison
    kernels().layer_norm_backward(stream, d_x.tested.tensor(), d_w.tested.tensor(), d_b.tested.tensor(),
                                  through.tested.tensor(), d_y.tested.tensor(), residual.tested.tensor(),
                                  mean.tested.tensor(), rstd.tested.tensor(), w.tested.tensor(), Write::overwrite,
                                  own.tensor());
    d_w.check("layer d_w", tolerance<S>);
    d_b.check("layer d_b", tolerance<S>);
  }
}

TEST_CASE_TEMPLATE("activations, biases and rotations of model widths", T, Bf16, float) {
  Random random(2);
  using S = StatsOf<T>;
  for (const std::int64_t n : {64, 688, 3072}) {
    const std::int64_t rows = 129;
    INFO("n ", n);
    auto pair = Pair<T>::random(random, {rows, 2 * n}), d_out = Pair<T>::random(random, {rows, n});
    auto x = Pair<T>::random(random, {rows, n}), bias = Pair<T>::random(random, {n});
    Pair<T> out({rows, n}), d_pair({rows, 2 * n}), d_x({rows, n});
    Pair<S> d_bias({n});
    kernels().swiglu_forward(stream, out.tested.tensor(), pair.tested.tensor());
    reference().swiglu_forward(stream, out.exact.tensor(), pair.exact.tensor());
    out.check("swiglu", tolerance<T>);
    kernels().swiglu_backward(stream, d_pair.tested.tensor(), d_out.tested.tensor(), pair.tested.tensor());
    reference().swiglu_backward(stream, d_pair.exact.tensor(), d_out.exact.tensor(), pair.exact.tensor());
    d_pair.check("swiglu backward", tolerance<T>);
    for (const Gelu form : {Gelu::exact, Gelu::tanh}) {
      kernels().gelu_forward(stream, out.tested.tensor(), x.tested.tensor(), form);
      reference().gelu_forward(stream, out.exact.tensor(), x.exact.tensor(), form);
      out.check("gelu", tolerance<T>);
      kernels().gelu_backward(stream, d_x.tested.tensor(), d_out.tested.tensor(), x.tested.tensor(), form);
      reference().gelu_backward(stream, d_x.exact.tensor(), d_out.exact.tensor(), x.exact.tensor(), form);
      d_x.check("gelu backward", tolerance<T>);
    }
    kernels().bias_add(stream, out.tested.tensor(), x.tested.tensor(), bias.tested.tensor());
    reference().bias_add(stream, out.exact.tensor(), x.exact.tensor(), bias.exact.tensor());
    out.check("bias", tolerance<T>);
    kernels().bias_gradient(stream, d_bias.tested.tensor(), d_out.tested.tensor(), Write::overwrite);
    reference().bias_gradient(stream, d_bias.exact.tensor(), d_out.exact.tensor(), Write::overwrite);
    d_bias.check("bias gradient", tolerance<S>);

    Buffer<std::int64_t> samples({3});
    for (int i = 0; i < 3; ++i) samples.at(i) = 5 * i;
    const DropoutKey key{0.25, 9, 3, 43};
    kernels().bias_dropout(stream, out.tested.tensor(), x.tested.tensor(), bias.tested.tensor(), samples.tensor(), key);
    reference().bias_dropout(stream, out.exact.tensor(), x.exact.tensor(), bias.exact.tensor(), samples.tensor(), key);
    out.check("dropout", tolerance<T>);
  }
  for (const std::int64_t head_dim : {64, 128}) {
    auto x = Pair<T>::random(random, {90, 6, head_dim}, 8 * head_dim);
    Pair<S> table({50, head_dim / 2, 2});
    for (std::int64_t i = 0; i < table.tested.numel(); ++i) {
      table.tested.flat(i) = static_cast<S>(random.uniform(-1, 1));
      table.exact.flat(i) = static_cast<double>(table.tested.flat(i));
    }
    auto positions = Buffer<std::int32_t>::integers(random, {90}, 0, 50);
    kernels().rope(stream, x.tested.tensor(), table.tested.tensor(), positions.tensor(), Rotation::forward);
    reference().rope(stream, x.exact.tensor(), table.exact.tensor(), positions.tensor(), Rotation::forward);
    x.check("rope", tolerance<T>);
  }
}

TEST_CASE_TEMPLATE("embedding, loss and optimizer of model widths", T, Bf16, float) {
  Random random(3);
  using S = StatsOf<T>;
  const std::int64_t tokens = 210, cols = 768, rows = 5056;
  const VocabRange vocab{0, 5040};
  auto table = Pair<T>::random(random, {rows, cols});
  auto d_out = Pair<T>::random(random, {tokens, cols});
  auto ids = Buffer<std::int32_t>::integers(random, {tokens}, 0, 60);
  auto order = sorted_order(ids);
  Pair<T> out({tokens, cols});
  Pair<S> d_table({rows, cols});
  kernels().embedding_forward(stream, out.tested.tensor(), ids.tensor(), table.tested.tensor(), vocab);
  reference().embedding_forward(stream, out.exact.tensor(), ids.tensor(), table.exact.tensor(), vocab);
  out.check("embedding", 0);
  kernels().embedding_backward(stream, d_table.tested.tensor(), d_out.tested.tensor(), ids.tensor(), order.tensor(),
                               vocab, Write::overwrite);
  reference().embedding_backward(stream, d_table.exact.tensor(), d_out.exact.tensor(), ids.tensor(), order.tensor(),
                                 vocab, Write::overwrite);
  d_table.check("embedding backward", tolerance<S>);

  auto logits = Pair<T>::random(random, {tokens, rows}, 0, 4);
  auto targets = Buffer<std::int32_t>::integers(random, {tokens}, 0, vocab.valid);
  auto weights = Buffer<float>::random(random, {tokens}, 0, 0.3, 1);
  Pair<S> stats({3, tokens});
  Buffer<double> totals({4}), exact_totals({4});
  totals.fill(0);
  exact_totals.fill(0);
  kernels().cross_entropy_stats(stream, stats.tested.tensor(), logits.tested.tensor(), targets.tensor(), vocab);
  reference().cross_entropy_stats(stream, stats.exact.tensor(), logits.exact.tensor(), targets.tensor(), vocab);
  stats.check("loss statistics", tolerance<S>);
  kernels().cross_entropy_loss(stream, totals.tensor(), stats.tested.tensor(), weights.tensor());
  reference().cross_entropy_loss(stream, exact_totals.tensor(), stats.exact.tensor(), weights.tensor());
  check_close("loss", totals, exact_totals.values(), tolerance<S>);
  kernels().cross_entropy_gradient(stream, logits.tested.tensor(), stats.tested.tensor(), targets.tensor(),
                                   weights.tensor(), vocab);
  reference().cross_entropy_gradient(stream, logits.exact.tensor(), stats.exact.tensor(), targets.tensor(),
                                     weights.tensor(), vocab);
  logits.check("loss gradient", tolerance<T>);
}

/// Every element of the gradient to its own size: the largest are a million times the smallest.
TEST_CASE_TEMPLATE("loss and gradient of model vocabularies", T, Bf16, float) {
  Random random(7);
  using S = StatsOf<T>;
  struct Size {
    std::int64_t valid, cols, gap;
  };
  const std::int64_t tokens = 5;
  for (const Size& size :
       {Size{50257, 50304, 0}, Size{50257, 50304, 64}, Size{128256, 128256, 0}, Size{151936, 151936, 0},
        Size{262144, 262144, 0}, Size{32000, 32000, 8}, Size{100003, 100003, 0}}) {
    INFO("cols ", size.cols);
    const VocabRange vocab{0, size.valid};
    auto logits = Pair<T>::random(random, {tokens, size.cols}, size.cols + size.gap, 3);
    auto targets = Buffer<std::int32_t>::integers(random, {tokens}, 0, size.valid);
    targets.at(0) = static_cast<std::int32_t>(size.valid - 1);
    targets.at(1) = -1;
    auto weights = Buffer<float>::random(random, {tokens}, 0, 0.3, 1);
    weights.at(2) = 0;
    Pair<S> stats({3, tokens});
    kernels().cross_entropy_with_gradient(stream, stats.tested.tensor(), logits.tested.tensor(), targets.tensor(),
                                          weights.tensor(), vocab);
    reference().cross_entropy_with_gradient(stream, stats.exact.tensor(), logits.exact.tensor(), targets.tensor(),
                                            weights.tensor(), vocab);
    for (std::int64_t i = 0; i < stats.exact.numel(); ++i) {
      CHECK(std::abs(static_cast<double>(stats.tested.flat(i)) - stats.exact.flat(i)) <=
            tolerance<S> * std::abs(stats.exact.flat(i)));
    }
    std::int64_t wrong = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t c = 0; c < size.cols; ++c) {
        const double exact = logits.exact.at(t, c);
        const double rest = c == targets.at(t) ? tolerance<S> : 0;  // 1 has been subtracted
        const double error = std::abs(static_cast<double>(logits.tested.at(t, c)) - exact);
        if (!(error <= tolerance<T> * std::abs(exact) + rest)) ++wrong;
      }
    }
    CHECK(wrong == 0);
    CHECK(logits.tested.gaps_intact());
  }
}

TEST_CASE_TEMPLATE("optimizer and conversions on aligned ranges", T, Bf16, float) {
  Random random(6);
  using S = StatsOf<T>;
  const std::int64_t n = 100 * 1024;
  auto master = Pair<S>::random(random, {n}), m = Pair<S>::random(random, {n}, 0, 0.1),
       v = Pair<S>::random(random, {n}, 0, 0.1), gradient = Pair<S>::random(random, {n}, 0, 30);
  for (std::int64_t i = 0; i < n; ++i) {
    v.tested.at(i) = std::abs(v.tested.at(i));
    v.exact.at(i) = std::abs(v.exact.at(i));
  }
  Buffer<double> scalars({8});
  const double values[] = {0.02, 3e-2, 1 - 0.9 * 0.9, 1 - 0.95 * 0.95, 1, 0, 0, 0};
  for (std::int64_t i = 0; i < 8; ++i) scalars.at(i) = values[i];
  const AdamWOptions options{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1};
  Buffer<T> published({n});
  kernels().adamw(stream, master.tested.tensor(), m.tested.tensor(), v.tested.tensor(), published.tensor(),
                  gradient.tested.tensor(), scalars.tensor(), options);
  reference().adamw(stream, master.exact.tensor(), m.exact.tensor(), v.exact.tensor(), {}, gradient.exact.tensor(),
                    scalars.tensor(), options);
  master.check("adamw", tolerance<S>);
  v.check("second moment", tolerance<S>);
  check_close("published weights", published, master.exact.values(), tolerance<T>);
  Buffer<double> totals({4}), exact_totals({4});
  totals.fill(0);
  exact_totals.fill(0);
  kernels().sum_squares(stream, totals.tensor(), gradient.tested.tensor());
  reference().sum_squares(stream, exact_totals.tensor(), gradient.exact.tensor());
  check_close("squares", totals, exact_totals.values(), 1e-13);
  Buffer<T> rounded({n});
  kernels().convert(stream, rounded.tensor(), gradient.tested.tensor());
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < n; ++i) wrong += rounded.at(i) != static_cast<T>(gradient.tested.at(i));
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("matrix products of model widths", T, Bf16, float) {
  Random random(4);
  for (const GemmForm form : {GemmForm::nt, GemmForm::nn, GemmForm::tn}) {
    const std::int64_t m = 256, n = 384, k = 192;
    INFO("form ", static_cast<int>(form));
    auto a = form == GemmForm::tn ? Pair<T>::random(random, {k, m}) : Pair<T>::random(random, {m, k});
    auto b = form == GemmForm::nt ? Pair<T>::random(random, {n, k}) : Pair<T>::random(random, {k, n});
    Pair<T> d({m, n}, n + 64);
    kernels().gemm(stream, form, d.tested.tensor(), a.tested.tensor(), b.tested.tensor());
    reference().gemm(stream, form, d.exact.tensor(), a.exact.tensor(), b.exact.tensor());
    d.check("product", tolerance<T>);
    auto bias = Pair<T>::random(random, {n});
    kernels().gemm(stream, form, d.tested.tensor(), a.tested.tensor(), b.tested.tensor(), Write::overwrite,
                   bias.tested.tensor());
    reference().gemm(stream, form, d.exact.tensor(), a.exact.tensor(), b.exact.tensor(), Write::overwrite,
                     bias.exact.tensor());
    d.check("product with bias", 2 * tolerance<T>);   // rounded twice where the bias is added apart
    auto sums = Pair<float>::random(random, {m, n});  // weight gradients
    kernels().gemm(stream, form, sums.tested.tensor(), a.tested.tensor(), b.tested.tensor(), Write::accumulate);
    reference().gemm(stream, form, sums.exact.tensor(), a.exact.tensor(), b.exact.tensor(), Write::accumulate);
    sums.check("fp32 sums", tolerance<float>);
  }
}
