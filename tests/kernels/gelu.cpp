// SPDX-License-Identifier: Apache-2.0
/// gelu in both forms, with and without a bias: values, extreme inputs, in place, and the gradient; and biases alone:
/// bias_add, bias_gradient.
#include <tuple>

#include "kernels.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

const std::vector<std::pair<std::int64_t, std::int64_t>> shapes = {{1, 1}, {5, 13}, {130, 257}};

double reference(Gelu form, double x) {
  if (form == Gelu::exact) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double reference_derivative(Gelu form, double x) {
  if (form == Gelu::exact) return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

}  // namespace

TEST_CASE_TEMPLATE("gelu agrees with plain loops, also in place", T, Bf16, float, double) {
  Random random(1);
  for (const Gelu form : {Gelu::exact, Gelu::tanh}) {
    for (const auto& [rows, n] : shapes) {
      auto x = Buffer<T>::random(random, {rows, n}, n + 5, 2), d_out = Buffer<T>::random(random, {rows, n}, n + 1);
      Buffer<T> out({rows, n}, n + 2), d_x({rows, n}, n + 5);
      std::vector<double> expected, expected_d;
      for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t c = 0; c < n; ++c) {
          const double z = static_cast<double>(x.at(t, c));
          expected.push_back(reference(form, z));
          expected_d.push_back(static_cast<double>(d_out.at(t, c)) * reference_derivative(form, z));
        }
      }
      check_thread_invariance(out, [&] { kernels().gelu_forward(stream, out.tensor(), x.tensor(), form); });
      check_close("out", out, expected, tolerance<T>);
      const auto backward = [&](Tensor to) { kernels().gelu_backward(stream, to, d_out.tensor(), x.tensor(), form); };
      check_thread_invariance(d_x, [&] { backward(d_x.tensor()); });
      check_close("d_x", d_x, expected_d, tolerance<T>);
      backward(x.tensor());
      CHECK(x.same_bits(d_x));
    }
  }
}

TEST_CASE_TEMPLATE("gelu stays finite for large inputs and passes NaN on", T, float, double) {
  for (const Gelu form : {Gelu::exact, Gelu::tanh}) {
    Buffer<T> x({1, 3}), out({1, 3}), d_out({1, 3}), d_x({1, 3});
    x.at(0, 0) = -3000;
    x.at(0, 1) = 3000;
    x.at(0, 2) = std::numeric_limits<T>::quiet_NaN();
    d_out.fill(1);
    kernels().gelu_forward(stream, out.tensor(), x.tensor(), form);
    kernels().gelu_backward(stream, d_x.tensor(), d_out.tensor(), x.tensor(), form);
    CHECK(out.at(0, 0) == 0);
    CHECK(out.at(0, 1) == 3000);
    CHECK(std::isnan(out.at(0, 2)));
    CHECK(d_x.at(0, 0) == 0);
    CHECK(d_x.at(0, 1) == 1);
    CHECK(std::isnan(d_x.at(0, 2)));
  }
}

TEST_CASE_TEMPLATE("products with a GeLU are the product and the GeLU", T, Bf16, float, double) {
  Random random(5);
  for (const Gelu form : {Gelu::exact, Gelu::tanh}) {
    for (const auto& [m, n, k, gap] : {std::tuple{5, 7, 3, 2}, std::tuple{48, 64, 40, 0}, std::tuple{65, 72, 24, 8}}) {
      INFO(m, " x ", n, " x ", k);
      auto a = Buffer<T>::random(random, {m, k}), b = Buffer<T>::random(random, {n, k}),
           bias = Buffer<T>::random(random, {n});
      auto d_y = Buffer<T>::random(random, {m, k}), w = Buffer<T>::random(random, {k, n});
      Buffer<T> x({m, n}, n + gap), y({m, n}, n + gap), d_x({m, n}, n + gap), z({m, n}), d_out({m, n});
      kernels().gemm_gelu_forward(stream, y.tensor(), x.tensor(), a.tensor(), b.tensor(), bias.tensor(), form);
      kernels().gemm(stream, GemmForm::nt, z.tensor(), a.tensor(), b.tensor(), Write::overwrite, bias.tensor());
      check_close("x", x, z.values(), tolerance<T>);
      std::vector<double> expected = x.values();
      for (double& value : expected) value = reference(form, value);
      check_close("y", y, expected, 2 * tolerance<T>);
      kernels().gemm_gelu_backward(stream, d_x.tensor(), d_y.tensor(), w.tensor(), x.tensor(), form);
      kernels().gemm(stream, GemmForm::nn, d_out.tensor(), d_y.tensor(), w.tensor());
      expected = d_out.values();
      const std::vector<double> inputs = x.values();
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] *= reference_derivative(form, inputs[i]);
      check_close("d_x", d_x, expected, 2 * tolerance<T>);
    }
  }
}

TEST_CASE("gelu_backward and bias_gradient are the gradients") {
  Random random(2);
  for (const Gelu form : {Gelu::exact, Gelu::tanh}) {
    auto x = Buffer<double>::random(random, {6, 5}, 12), d_out = Buffer<double>::random(random, {6, 5});
    auto b = Buffer<double>::random(random, {5});
    Buffer<double> sum({6, 5}), out({6, 5}), d_x({6, 5}), d_b({5});
    const auto forward = [&] {
      kernels().bias_add(stream, sum.tensor(), x.tensor(), b.tensor());
      kernels().gelu_forward(stream, out.tensor(), sum.tensor(), form);
      return weighted_sum(d_out, out);
    };
    forward();
    kernels().gelu_backward(stream, d_x.tensor(), d_out.tensor(), sum.tensor(), form);
    kernels().bias_gradient(stream, d_b.tensor(), d_x.tensor(), Write::overwrite);
    check_gradient(random, {{&x, d_x.values()}, {&b, d_b.values()}}, forward);
  }
}

TEST_CASE_TEMPLATE("bias_add adds to every row, also in place", T, Bf16, float, double) {
  Random random(3);
  for (const auto& [rows, n] : shapes) {
    auto x = Buffer<T>::random(random, {rows, n}, n + 2), b = Buffer<T>::random(random, {n});
    Buffer<T> out({rows, n}, n + 2);
    std::vector<double> expected = x.values();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += static_cast<double>(b.at(static_cast<std::int64_t>(i) % n));
    }
    check_thread_invariance(out, [&] { kernels().bias_add(stream, out.tensor(), x.tensor(), b.tensor()); });
    check_close("out", out, expected, tolerance<T>);
    kernels().bias_add(stream, x.tensor(), x.tensor(), b.tensor());
    CHECK(x.same_bits(out));
  }
}

TEST_CASE_TEMPLATE("bias_gradient sums columns, the same bits for any number of threads", T, Bf16, float, double) {
  Random random(4);
  for (const auto& [rows, n] : shapes) {
    auto d_out = Buffer<T>::random(random, {rows, n}, n + 3);
    const auto before = Buffer<StatsOf<T>>::random(random, {n});
    Buffer<StatsOf<T>> d_b({n});
    std::vector<double> expected(static_cast<std::size_t>(n), 0.0);
    for (std::int64_t t = 0; t < rows; ++t) {
      for (std::int64_t c = 0; c < n; ++c) expected[static_cast<std::size_t>(c)] += static_cast<double>(d_out.at(t, c));
    }
    check_thread_invariance(d_b,
                            [&] { kernels().bias_gradient(stream, d_b.tensor(), d_out.tensor(), Write::overwrite); });
    check_close("d_bias", d_b, expected, tolerance<T>);
    d_b = before;
    kernels().bias_gradient(stream, d_b.tensor(), d_out.tensor(), Write::accumulate);
    for (std::int64_t c = 0; c < n; ++c) expected[static_cast<std::size_t>(c)] += static_cast<double>(before.at(c));
    check_close("accumulated d_bias", d_b, expected, tolerance<T>);
  }
}

TEST_CASE("bias operations refuse what does not fit") {
  Buffer<float> x({4, 8}), out({4, 8}), b({7});
  Buffer<double> wide({8});
  CHECK_THROWS_AS(kernels().bias_add(stream, out.tensor(), x.tensor(), b.tensor()), Error);
  CHECK_THROWS_AS(kernels().bias_add(stream, out.tensor(), x.tensor(), {}), Error);
  CHECK_THROWS_AS(kernels().gelu_forward(stream, b.tensor(), x.tensor(), Gelu::tanh), Error);
  CHECK_THROWS_AS(kernels().bias_gradient(stream, wide.tensor(), x.tensor(), Write::overwrite), Error);
}
