// SPDX-License-Identifier: Apache-2.0
/// swiglu forward and backward: values, extreme gates, in place, and the gradient. The exponential beneath it.
#include "common/math.hpp"
#include "kernels.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

template <class S>
double worst_ulp(double low, double high, int count) {
  double worst = 0;
  for (int i = 0; i <= count; ++i) {
    const S x = static_cast<S>(low + (high - low) * i / count);
    const long double exact = std::exp(static_cast<long double>(x));
    const S rounded = static_cast<S>(exact);
    const long double ulp =
        std::nextafter(rounded, std::numeric_limits<S>::infinity()) - static_cast<long double>(rounded);
    worst = std::max(worst, static_cast<double>(std::abs(static_cast<long double>(fast_exp(x)) - exact) / ulp));
  }
  return worst;
}

double sigma(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

TEST_CASE_TEMPLATE("fast_exp is good to about an ulp and right at the ends", S, float, double) {
  const double top = sizeof(S) == 4 ? 88.7 : 709.7, bottom = sizeof(S) == 4 ? -87.3 : -708.3;
  CHECK(worst_ulp<S>(bottom, top, 200001) < 1.25);
  CHECK(worst_ulp<S>(-1, 1, 200001) < 1.25);
  constexpr S infinity = std::numeric_limits<S>::infinity();
  CHECK(fast_exp(S{0}) == 1);
  CHECK(fast_exp(-infinity) == 0);
  CHECK(fast_exp(infinity) == infinity);
  CHECK(fast_exp(static_cast<S>(top + 1)) == infinity);
  CHECK(fast_exp(static_cast<S>(bottom - 3)) > 0);  // a denormal
  CHECK(std::isnan(fast_exp(std::numeric_limits<S>::quiet_NaN())));
}

TEST_CASE_TEMPLATE("swiglu agrees with plain loops, also in place", T, Bf16, float, double) {
  Random random(1);
  for (const auto& [rows, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {5, 13}, {70, 257}}) {
    auto gate_up = Buffer<T>::random(random, {rows, 2 * n}, 2 * n + 5, 3);
    auto d_out = Buffer<T>::random(random, {rows, n}, n + 1);
    Buffer<T> out({rows, n}, n + 2), d_gate_up({rows, 2 * n}, 2 * n + 5);
    std::vector<double> expected, expected_d(static_cast<std::size_t>(rows * 2 * n));
    for (std::int64_t t = 0; t < rows; ++t) {
      for (std::int64_t c = 0; c < n; ++c) {
        const double g = gate_up.at(t, c), u = gate_up.at(t, n + c), d = d_out.at(t, c), s = sigma(g);
        expected.push_back(g * s * u);
        expected_d[static_cast<std::size_t>(t * 2 * n + c)] = d * u * (s + g * s * (1 - s));
        expected_d[static_cast<std::size_t>(t * 2 * n + n + c)] = d * g * s;
      }
    }
    check_thread_invariance(out, [&] { kernels().swiglu_forward(stream, out.tensor(), gate_up.tensor()); });
    check_close("out", out, expected, tolerance<T>);
    check_thread_invariance(
        d_gate_up, [&] { kernels().swiglu_backward(stream, d_gate_up.tensor(), d_out.tensor(), gate_up.tensor()); });
    check_close("d_gate_up", d_gate_up, expected_d, tolerance<T>);
    kernels().swiglu_backward(stream, gate_up.tensor(), d_out.tensor(), gate_up.tensor());
    CHECK(gate_up.same_bits(d_gate_up));
  }
}

TEST_CASE_TEMPLATE("swiglu stays finite for large gates and passes NaN on", T, float, double) {
  Buffer<T> gate_up({1, 6}), out({1, 3}), d_out({1, 3}), d_gate_up({1, 6});
  const std::vector<T> values = {
      static_cast<T>(-2000), static_cast<T>(2000), std::numeric_limits<T>::quiet_NaN(), 2, 2, 2};
  for (std::int64_t i = 0; i < 6; ++i) gate_up.at(0, i) = values[static_cast<std::size_t>(i)];
  d_out.fill(1);
  kernels().swiglu_forward(stream, out.tensor(), gate_up.tensor());
  kernels().swiglu_backward(stream, d_gate_up.tensor(), d_out.tensor(), gate_up.tensor());
  CHECK(out.at(0, 0) == 0);
  CHECK(out.at(0, 1) == 4000);
  CHECK(std::isnan(out.at(0, 2)));
  CHECK(d_gate_up.at(0, 0) == 0);
  CHECK(d_gate_up.at(0, 1) == 2);
  CHECK(d_gate_up.at(0, 4) == 2000);
}

TEST_CASE("swiglu_backward is the gradient") {
  Random random(2);
  auto gate_up = Buffer<double>::random(random, {4, 10}, 12);
  auto d_out = Buffer<double>::random(random, {4, 5});
  Buffer<double> out({4, 5}), d_gate_up({4, 10});
  kernels().swiglu_backward(stream, d_gate_up.tensor(), d_out.tensor(), gate_up.tensor());
  check_gradient(random, {{&gate_up, d_gate_up.values()}}, [&] {
    kernels().swiglu_forward(stream, out.tensor(), gate_up.tensor());
    return weighted_sum(d_out, out);
  });
}
