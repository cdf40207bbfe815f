// SPDX-License-Identifier: Apache-2.0
/// sum_squares, step_scalars and adamw.
#include "kernels.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

TEST_CASE_TEMPLATE("sum_squares adds to the totals in an order of its own", T, Bf16, float, double) {
  Random random(1);
  for (const std::int64_t n : {1L, 15L, 4096L, 100003L}) {
    auto x = Buffer<T>::random(random, {n});
    Buffer<double> totals({4});
    double expected = 5;
    for (std::int64_t i = 0; i < n; ++i) expected += static_cast<double>(x.at(i)) * static_cast<double>(x.at(i));
    check_thread_invariance(totals, [&] {
      totals.fill(5);
      kernels().sum_squares(stream, totals.tensor(), x.tensor());
    });
    CHECK(std::abs(totals.at(2) - expected) <= 1e-13 * expected);
    CHECK(totals.at(0) == 5);
    CHECK(totals.at(1) == 5);
    CHECK(totals.at(3) == 5);
  }
}

TEST_CASE("sum_squares of more blocks than one group") {
  const std::int64_t n = 1024 * 4096 + 4097;
  Buffer<float> x({n});
  x.fill(0.5f);
  Buffer<double> totals({4});
  totals.fill(0);
  kernels().sum_squares(stream, totals.tensor(), x.tensor());
  CHECK(totals.at(2) == 0.25 * static_cast<double>(n));
}

TEST_CASE_TEMPLATE("sum_squares flags what is not finite", T, float, double) {
  for (const T bad :
       {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity()}) {
    Buffer<T> x({9000});
    x.fill(1);
    x.at(5000) = bad;
    Buffer<double> totals({4});
    totals.fill(0);
    kernels().sum_squares(stream, totals.tensor(), x.tensor());
    CHECK(totals.at(3) == 1);
  }
  Buffer<T> x({10});
  x.fill(std::numeric_limits<T>::denorm_min());
  Buffer<double> totals({4});
  totals.fill(0);
  kernels().sum_squares(stream, totals.tensor(), x.tensor());
  CHECK(totals.at(3) == 0);
}

namespace {

StepScalars scalars_of(const StepTotals& t, const StepInputs& inputs) {
  Buffer<double> totals({4}), scalars({8});
  totals.at(0) = t.loss;
  totals.at(1) = t.tokens;
  totals.at(2) = t.squares;
  totals.at(3) = t.non_finite;
  kernels().step_scalars(stream, scalars.tensor(), totals.tensor(), inputs);
  const auto v = scalars.values();
  return {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
}

}  // namespace

TEST_CASE("step_scalars divides by tokens and clips by the norm") {
  const StepInputs inputs{.step = 3, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .clip = 1};
  const StepScalars s = scalars_of({.loss = 300, .tokens = 100, .squares = 90000, .non_finite = 0}, inputs);
  CHECK(s.gradient_norm == doctest::Approx(3));
  CHECK(s.gradient_scale == doctest::Approx(1 / (3 + 1e-6) / 100).epsilon(1e-14));
  CHECK(s.lr == 0.01);
  CHECK(s.bias1 == doctest::Approx(1 - 0.9 * 0.9 * 0.9).epsilon(1e-14));
  CHECK(s.bias2 == doctest::Approx(1 - 0.95 * 0.95 * 0.95).epsilon(1e-14));
  CHECK(s.apply == 1);
  CHECK(s.loss == doctest::Approx(3));
  CHECK(s.tokens == 100);

  StepInputs loose = inputs;
  loose.clip = 10;
  CHECK(scalars_of({300, 100, 90000, 0}, loose).gradient_scale == 0.01);
  loose.clip = 0;
  CHECK(scalars_of({300, 100, 90000, 0}, loose).gradient_scale == 0.01);
}

TEST_CASE("step_scalars holds for betas near 0 and 1") {
  StepInputs inputs{.step = 1, .lr = 1, .beta1 = 0, .beta2 = 1 - 0x1p-40, .clip = 0};
  const StepScalars s = scalars_of({1, 1, 1, 0}, inputs);
  CHECK(s.bias1 == 1);
  CHECK(s.bias2 == doctest::Approx(0x1p-40).epsilon(1e-12));
  inputs.beta2 = 0.5;
  inputs.step = 1000000;
  CHECK(scalars_of({1, 1, 1, 0}, inputs).bias2 == 1);
}

TEST_CASE("step_scalars skips what must not be applied") {
  const StepInputs inputs{.step = 1, .lr = 1, .clip = 1};
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const StepTotals& t : {StepTotals{1, 1, 1, 1}, StepTotals{nan, 1, 1, 0}, StepTotals{1, 1, nan, 0},
                              StepTotals{1, 1, infinity, 0}, StepTotals{1, nan, 1, 0}, StepTotals{0, 0, 0, 0}}) {
    const StepScalars s = scalars_of(t, inputs);
    CHECK(s.apply == 0);
    CHECK(s.gradient_scale == 0);
  }
  const StepScalars none = scalars_of({0, 0, 0, 0}, inputs);
  CHECK(none.loss == 0);
  CHECK(none.gradient_norm == 0);
}

namespace {

template <class T>
struct AdamWCase {
  AdamWCase(Random& random, std::int64_t n)
      : master(Buffer<T>::random(random, {n})),
        m(Buffer<T>::random(random, {n}, 0, 0.1)),
        v(Buffer<T>::random(random, {n}, 0, 0.1)),
        gradient(Buffer<T>::random(random, {n}, 0, 30)),
        weights({n}),
        scalars({8}) {
    v.each([](T& x) { x = x * x; });
    const double values[] = {0.02, 3e-2, 1 - 0.9 * 0.9, 1 - 0.95 * 0.95, 1, 0, 0, 0};
    for (std::int64_t i = 0; i < 8; ++i) scalars.at(i) = values[i];
  }

  void run(std::int64_t begin, std::int64_t end, bool publish = true) {
    const auto part = [&](Buffer<T>& b) { return b.tensor().flat(begin, end - begin); };
    kernels().adamw(stream, part(master), part(m), part(v), publish ? part(weights) : Tensor{}, part(gradient),
                    scalars.tensor(), options);
  }

  Buffer<T> master, m, v, gradient, weights;
  Buffer<double> scalars;
  AdamWOptions options{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1};
};

}  // namespace

TEST_CASE_TEMPLATE("adamw follows its formula, whatever the threads and chunks", T, float, double) {
  Random random(2);
  const std::int64_t n = 20011;
  const AdamWCase<T> before(random, n);
  AdamWCase<T> whole = before, parts = before;
  std::vector<double> p, m, v;
  for (std::int64_t i = 0; i < n; ++i) {
    const double g = 0.02 * static_cast<double>(before.gradient.at(i)), old = before.master.at(i);
    m.push_back(0.9 * static_cast<double>(before.m.at(i)) + 0.1 * g);
    v.push_back(0.95 * static_cast<double>(before.v.at(i)) + 0.05 * g * g);
    const double m_hat = m.back() / (1 - 0.9 * 0.9), v_hat = v.back() / (1 - 0.95 * 0.95);
    p.push_back(old - 3e-2 * (m_hat / (std::sqrt(v_hat) + 1e-3) + 0.1 * old));
  }
  check_thread_invariance(whole.master, [&] {
    whole = before;
    whole.run(0, n);
  });
  check_close("m", whole.m, m, tolerance<T>);
  check_close("v", whole.v, v, tolerance<T>);
  check_close("master", whole.master, p, tolerance<T>);
  CHECK(whole.weights.same_bits(whole.master));
  for (std::int64_t begin = 0; begin < n;) {
    const std::int64_t end = std::min(n, begin + 1 + random.below(3000));
    parts.run(begin, end, false);
    begin = end;
  }
  CHECK(parts.master.same_bits(whole.master));
  CHECK(parts.m.same_bits(whole.m));
  CHECK(parts.v.same_bits(whole.v));
  CHECK(std::isnan(parts.weights.at(0)));
}

TEST_CASE("adamw publishes weights of another dtype") {
  Random random(3);
  AdamWCase<double> c(random, 1000);
  Buffer<float> weights({1000});
  kernels().adamw(stream, c.master.tensor(), c.m.tensor(), c.v.tensor(), weights.tensor(), c.gradient.tensor(),
                  c.scalars.tensor(), c.options);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < 1000; ++i) wrong += weights.at(i) != static_cast<float>(c.master.at(i));
  CHECK(wrong == 0);
}

TEST_CASE("adamw publishes its fp32 masters in bf16") {
  Random random(6);
  AdamWCase<float> c(random, 20011), alone = c;
  Buffer<Bf16> weights({20011});
  kernels().adamw(stream, c.master.tensor(), c.m.tensor(), c.v.tensor(), weights.tensor(), c.gradient.tensor(),
                  c.scalars.tensor(), c.options);
  alone.run(0, 20011);
  CHECK(c.master.same_bits(alone.master));
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < 20011; ++i) wrong += weights.at(i).bits != Bf16(c.master.at(i)).bits;
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("adamw leaves everything alone where apply is 0", T, float, double) {
  Random random(4);
  AdamWCase<T> c(random, 100);
  c.scalars.at(4) = 0;
  c.gradient.fill(Buffer<T>::poison());
  const AdamWCase<T> before = c;
  c.run(0, 100);
  CHECK(c.master.same_bits(before.master));
  CHECK(c.m.same_bits(before.m));
  CHECK(c.v.same_bits(before.v));
  CHECK(c.weights.same_bits(before.weights));
}

TEST_CASE("adamw keeps padding at zero") {
  Random random(5);
  AdamWCase<float> c(random, 4);
  for (Buffer<float>* b : {&c.master, &c.m, &c.v, &c.gradient}) b->fill(0);
  c.run(0, 4);
  CHECK(c.master.at(3) == 0);
  CHECK(c.weights.at(0) == 0);
}
