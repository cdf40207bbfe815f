// SPDX-License-Identifier: Apache-2.0
/// cross_entropy: statistics of a vocabulary range, the loss, the gradient in place, padding columns, and ranges that
/// are put together again as tensor-parallel ranks do.
#include "kernels.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

struct Case {
  std::int64_t tokens, columns;  // of the local logits
  VocabRange vocab;
  std::int64_t all;  // targets are in [0, all)
  double deviation;
};
const std::vector<Case> cases = {
    {7, 5, {0, 5}, 5, 1}, {20, 40, {30, 33}, 100, 4}, {9, 3000, {0, 2990}, 2990, 10}, {3, 4, {8, 0}, 8, 1}};

}  // namespace

TEST_CASE_TEMPLATE("cross_entropy_stats reads the true columns only", T, Bf16, float, double) {
  Random random(1);
  for (const Case& c : cases) {
    auto logits = Buffer<T>::random(random, {c.tokens, c.columns}, c.columns + 3, c.deviation);
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      for (std::int64_t k = c.vocab.valid; k < c.columns; ++k) logits.at(t, k) = Buffer<T>::poison();
    }
    auto targets = Buffer<std::int32_t>::integers(random, {c.tokens}, 0, c.all);
    Buffer<StatsOf<T>> stats({3, c.tokens}, c.tokens + 2);
    check_thread_invariance(stats, [&] {
      kernels().cross_entropy_stats(stream, stats.tensor(), logits.tensor(), targets.tensor(), c.vocab);
    });
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      double maximum = -std::numeric_limits<double>::infinity(), sum = 0;
      for (std::int64_t k = 0; k < c.vocab.valid; ++k)
        maximum = std::max(maximum, static_cast<double>(logits.at(t, k)));
      for (std::int64_t k = 0; k < c.vocab.valid; ++k) sum += std::exp(static_cast<double>(logits.at(t, k)) - maximum);
      const std::int64_t local = targets.at(t) - c.vocab.first;
      CHECK(static_cast<double>(stats.at(0, t)) == maximum);
      CHECK(std::abs(static_cast<double>(stats.at(1, t)) - sum) <= tolerance<T> * sum);
      CHECK(stats.at(2, t) == (local >= 0 && local < c.vocab.valid ? logits.at(t, local) : T{0}));
    }
    CHECK(stats.gaps_intact());
  }
}

TEST_CASE_TEMPLATE("cross_entropy_loss adds weighted losses to the totals", T, Bf16, float, double) {
  Random random(2);
  const std::int64_t tokens = 50, columns = 33;
  auto logits = Buffer<T>::random(random, {tokens, columns}, 0, 3);
  auto targets = Buffer<std::int32_t>::integers(random, {tokens}, 0, columns);
  auto weights = Buffer<float>::random(random, {tokens}, 0, 0.3, 1);
  weights.at(3) = 0;
  Buffer<StatsOf<T>> stats({3, tokens});
  Buffer<double> totals({4});
  for (std::int64_t i = 0; i < 4; ++i) totals.at(i) = static_cast<double>(i) + 10;
  double loss = 10, count = 11;
  for (std::int64_t t = 0; t < tokens; ++t) {
    double sum = 0;
    for (std::int64_t k = 0; k < columns; ++k) {
      sum += std::exp(static_cast<double>(logits.at(t, k)) - static_cast<double>(logits.at(t, targets.at(t))));
    }
    loss += static_cast<double>(weights.at(t)) * std::log(sum);
    count += static_cast<double>(weights.at(t));
  }
  kernels().cross_entropy_stats(stream, stats.tensor(), logits.tensor(), targets.tensor(), {0, columns});
  kernels().cross_entropy_loss(stream, totals.tensor(), stats.tensor(), weights.tensor());
  CHECK(std::abs(totals.at(0) - loss) <= tolerance<T> * loss);
  CHECK(std::abs(totals.at(1) - count) <= 1e-14 * count);
  CHECK(totals.at(2) == 12);
  CHECK(totals.at(3) == 13);
}

TEST_CASE_TEMPLATE("cross_entropy_gradient is weights * (softmax - one_hot), zero in padding", T, Bf16, float, double) {
  Random random(3);
  for (const Case& c : cases) {
    if (c.vocab.valid == 0) continue;
    auto logits = Buffer<T>::random(random, {c.tokens, c.columns}, c.columns + 3, c.deviation);
    const auto before = logits;
    auto targets = Buffer<std::int32_t>::integers(random, {c.tokens}, 0, c.all);
    auto weights = Buffer<float>::random(random, {c.tokens}, 0, 0.3, 1);
    weights.at(1) = 0;
    Buffer<StatsOf<T>> stats({3, c.tokens});
    kernels().cross_entropy_stats(stream, stats.tensor(), logits.tensor(), targets.tensor(), c.vocab);
    std::vector<double> expected;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      double sum = 0;
      const double maximum = stats.at(0, t), w = weights.at(t);
      for (std::int64_t k = 0; k < c.vocab.valid; ++k) sum += std::exp(static_cast<double>(before.at(t, k)) - maximum);
      for (std::int64_t k = 0; k < c.columns; ++k) {
        const double softmax = std::exp(static_cast<double>(before.at(t, k)) - maximum) / sum;
        const double one = k + c.vocab.first == targets.at(t) ? 1 : 0;
        expected.push_back(k < c.vocab.valid ? w * (softmax - one) : 0);
      }
    }
    check_thread_invariance(logits, [&] {
      logits = before;
      kernels().cross_entropy_gradient(stream, logits.tensor(), stats.tensor(), targets.tensor(), weights.tensor(),
                                       c.vocab);
    });
    check_close("gradient", logits, expected, tolerance<T>);
  }
}

TEST_CASE("cross_entropy_gradient is the gradient of the loss") {
  Random random(4);
  const std::int64_t tokens = 6, columns = 9;
  const VocabRange vocab{0, 7};
  auto logits = Buffer<double>::random(random, {tokens, columns}, columns + 1);
  auto targets = Buffer<std::int32_t>::integers(random, {tokens}, 0, vocab.valid);
  auto weights = Buffer<float>::random(random, {tokens}, 0, 0.3, 1);
  Buffer<double> stats({3, tokens}), totals({4});
  const auto loss = [&] {
    totals.fill(0);
    kernels().cross_entropy_stats(stream, stats.tensor(), logits.tensor(), targets.tensor(), vocab);
    kernels().cross_entropy_loss(stream, totals.tensor(), stats.tensor(), weights.tensor());
    return totals.at(0);
  };
  loss();
  auto gradient = logits;
  kernels().cross_entropy_gradient(stream, gradient.tensor(), stats.tensor(), targets.tensor(), weights.tensor(),
                                   vocab);
  check_gradient(random, {{&logits, gradient.values()}}, loss);
}

TEST_CASE("statistics of two ranges combine to those of the whole vocabulary") {
  Random random(5);
  const std::int64_t tokens = 11, columns = 64, split = 24;
  auto logits = Buffer<double>::random(random, {tokens, columns}, 0, 5);
  auto targets = Buffer<std::int32_t>::integers(random, {tokens}, 0, columns);
  Buffer<double> whole({3, tokens}), left({3, tokens}), right({3, tokens});
  kernels().cross_entropy_stats(stream, whole.tensor(), logits.tensor(), targets.tensor(), {0, columns});
  kernels().cross_entropy_stats(stream, left.tensor(), logits.tensor().cols_at(0, split), targets.tensor(), {0, split});
  kernels().cross_entropy_stats(stream, right.tensor(), logits.tensor().cols_at(split, columns - split),
                                targets.tensor(), {split, columns - split});
  for (std::int64_t t = 0; t < tokens; ++t) {
    const double maximum = std::max(left.at(0, t), right.at(0, t));
    const double sum =
        left.at(1, t) * std::exp(left.at(0, t) - maximum) + right.at(1, t) * std::exp(right.at(0, t) - maximum);
    CHECK(whole.at(0, t) == maximum);
    CHECK(std::abs(whole.at(1, t) - sum) <= 1e-13 * sum);
    CHECK(whole.at(2, t) == left.at(2, t) + right.at(2, t));
  }
}

TEST_CASE_TEMPLATE("a non-finite logit reaches the loss", T, float, double) {
  for (const T bad : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
    Buffer<T> logits({1, 50});
    logits.fill(1);
    logits.at(0, 37) = bad;
    Buffer<std::int32_t> targets({1});
    targets.at(0) = 2;
    Buffer<float> weights({1});
    weights.at(0) = 1;
    Buffer<StatsOf<T>> stats({3, 1});
    Buffer<double> totals({4});
    totals.fill(0);
    kernels().cross_entropy_stats(stream, stats.tensor(), logits.tensor(), targets.tensor(), {0, 50});
    kernels().cross_entropy_loss(stream, totals.tensor(), stats.tensor(), weights.tensor());
    CHECK_FALSE(std::isfinite(totals.at(0)));
  }
}
