// SPDX-License-Identifier: Apache-2.0
/// cross_entropy: statistics of a vocabulary range, the loss, the gradient in place, both in one operation, padding
/// columns, what is not finite, and ranges that are put together again as tensor-parallel ranks do.
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

TEST_CASE_TEMPLATE("cross_entropy_with_gradient is the statistics, then the gradient", T, Bf16, float, double) {
  Random random(6);
  auto all = cases;
  all.insert(all.end(), {{5, 50304, {0, 50257}, 50257, 3},     // rows of 2 blocks in bf16
                         {4, 128256, {0, 128256}, 128256, 3},  // of 4
                         {3, 200008, {0, 199999}, 200002, 3},  // of 8
                         {3, 32000, {0, 31994}, 32000, 3},     // of 1
                         {3, 50257, {0, 50257}, 50257, 3}});   // not in packs
  for (const Case& c : all) {
    if (c.vocab.valid == 0) continue;
    INFO("columns ", c.columns);
    auto logits = Buffer<T>::random(random, {c.tokens, c.columns}, c.columns + 8, c.deviation);
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      for (std::int64_t k = c.vocab.valid; k < c.columns; ++k) logits.at(t, k) = Buffer<T>::poison();
    }
    const auto before = logits;
    auto expected = logits;
    auto targets = Buffer<std::int32_t>::integers(random, {c.tokens}, 0, c.all);
    targets.at(2) = static_cast<std::int32_t>(c.vocab.first + c.vocab.valid - 1);
    auto weights = Buffer<float>::random(random, {c.tokens}, 0, 0.3, 1);
    weights.at(1) = 0;
    Buffer<StatsOf<T>> stats({3, c.tokens}, c.tokens + 2), expected_stats({3, c.tokens});
    kernels().cross_entropy_stats(stream, expected_stats.tensor(), expected.tensor(), targets.tensor(), c.vocab);
    kernels().cross_entropy_gradient(stream, expected.tensor(), expected_stats.tensor(), targets.tensor(),
                                     weights.tensor(), c.vocab);
    check_thread_invariance(logits, [&] {
      logits = before;
      kernels().cross_entropy_with_gradient(stream, stats.tensor(), logits.tensor(), targets.tensor(), weights.tensor(),
                                            c.vocab);
    });
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      CHECK(stats.at(0, t) == expected_stats.at(0, t));
      CHECK(std::abs(stats.at(1, t) - expected_stats.at(1, t)) <= tolerance<StatsOf<T>> * expected_stats.at(1, t));
      CHECK(stats.at(2, t) == expected_stats.at(2, t));
    }
    CHECK(stats.gaps_intact());
    check_close("gradient", logits, expected.values(), tolerance<T>);
  }
}

TEST_CASE_TEMPLATE("logits of -infinity have no share in loss and gradient", T, Bf16, float, double) {
  Random random(7);
  for (const std::int64_t columns : {2400, 50304}) {
    auto logits = Buffer<T>::random(random, {4, columns}, 0, 2);
    const std::int64_t low = columns / 3, high = columns - 100;  // what is left
    for (std::int64_t t = 0; t < 4; ++t) {
      for (std::int64_t k = 0; k < columns; ++k) {
        if (k < low || k >= high || k % 9 == 0)
          logits.at(t, k) = static_cast<T>(-std::numeric_limits<float>::infinity());
      }
    }
    const auto before = logits;
    auto targets = Buffer<std::int32_t>::integers(random, {4}, low, high - low);
    for (std::int64_t t = 0; t < 4; ++t) targets.at(t) += targets.at(t) % 9 == 0 ? 1 : 0;
    auto weights = Buffer<float>::random(random, {4}, 0, 0.3, 1);
    Buffer<StatsOf<T>> stats({3, 4}), apart({3, 4});
    kernels().cross_entropy_stats(stream, apart.tensor(), logits.tensor(), targets.tensor(), {0, columns});
    kernels().cross_entropy_with_gradient(stream, stats.tensor(), logits.tensor(), targets.tensor(), weights.tensor(),
                                          {0, columns});
    std::vector<double> expected;
    for (std::int64_t t = 0; t < 4; ++t) {
      double sum = 0;
      const double maximum = stats.at(0, t), w = weights.at(t);
      for (std::int64_t k = 0; k < columns; ++k) sum += std::exp(static_cast<double>(before.at(t, k)) - maximum);
      for (std::int64_t k = 0; k < columns; ++k) {
        const double softmax = std::exp(static_cast<double>(before.at(t, k)) - maximum) / sum;
        expected.push_back(w * (softmax - (k == targets.at(t) ? 1 : 0)));
      }
      for (const auto* each : {&stats, &apart}) {
        CHECK(static_cast<double>(each->at(0, t)) == maximum);
        CHECK(std::abs(static_cast<double>(each->at(1, t)) - sum) <= tolerance<StatsOf<T>> * sum);
      }
    }
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

TEST_CASE_TEMPLATE("cross_entropy_merge gives the statistics of the whole vocabulary", T, float, double) {
  Random random(5);
  for (const std::int64_t tokens : {1, 11, 3000}) {
    const std::int64_t columns = 64;
    auto logits = Buffer<T>::random(random, {tokens, columns}, 0, 5);
    auto targets = Buffer<std::int32_t>::integers(random, {tokens}, 0, columns);
    Buffer<T> whole({3, tokens}), merged({3, tokens}, tokens + 2), parts({4, 3, tokens});
    kernels().cross_entropy_stats(stream, whole.tensor(), logits.tensor(), targets.tensor(), {0, columns});
    const std::array ends{0, 24, 25, 64, 64};  // the last rank has no true row
    for (std::int64_t r = 0; r < 4; ++r) {
      const std::int64_t first = ends[static_cast<std::size_t>(r)], n = ends[static_cast<std::size_t>(r) + 1] - first;
      const Tensor stats = parts.tensor().flat(r * 3 * tokens, 3 * tokens).reshaped({3, tokens});
      const Tensor local = n > 0 ? logits.tensor().cols_at(first, n) : logits.tensor().cols_at(0, 1);
      kernels().cross_entropy_stats(stream, stats, local, targets.tensor(), {first, n});
    }
    check_thread_invariance(merged, [&] { kernels().cross_entropy_merge(stream, merged.tensor(), parts.tensor()); });
    for (std::int64_t t = 0; t < tokens; ++t) {
      CHECK(merged.at(0, t) == whole.at(0, t));
      CHECK(std::abs(merged.at(1, t) - whole.at(1, t)) <= tolerance<T> * whole.at(1, t));
      CHECK(merged.at(2, t) == whole.at(2, t));
    }
    CHECK(merged.gaps_intact());
  }
}

TEST_CASE_TEMPLATE("cross_entropy_merge passes on what is not finite", T, float, double) {
  for (const std::int64_t rank : {0, 1}) {
    for (const T bad : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
      Buffer<T> logits({1, 8}), stats({3, 1}), parts({2, 3, 1});
      logits.fill(1);
      logits.at(0, 4 * rank + 1) = bad;
      Buffer<std::int32_t> targets({1});
      targets.at(0) = 3;
      for (std::int64_t r = 0; r < 2; ++r) {
        kernels().cross_entropy_stats(stream, parts.tensor().flat(3 * r, 3).reshaped({3, 1}),
                                      logits.tensor().cols_at(4 * r, 4), targets.tensor(), {4 * r, 4});
      }
      kernels().cross_entropy_merge(stream, stats.tensor(), parts.tensor());
      CHECK_FALSE(std::isfinite(stats.at(1, 0)));
    }
  }
}

TEST_CASE_TEMPLATE("a non-finite logit reaches loss and gradient", T, Bf16, float, double) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const std::int64_t columns : {50, 50304}) {
      for (const std::int64_t at : {std::int64_t{0}, columns / 2 + 3, columns - 1}) {
        INFO("column ", at, " of ", columns);
        Buffer<T> logits({1, columns});
        logits.fill(static_cast<T>(1));
        logits.at(0, at) = static_cast<T>(bad);
        Buffer<std::int32_t> targets({1});
        targets.at(0) = 2;
        Buffer<float> weights({1});
        weights.at(0) = 1;
        Buffer<StatsOf<T>> stats({3, 1});
        const auto loss = [&] {
          Buffer<double> totals({4});
          totals.fill(0);
          kernels().cross_entropy_loss(stream, totals.tensor(), stats.tensor(), weights.tensor());
          return totals.at(0);
        };
        kernels().cross_entropy_stats(stream, stats.tensor(), logits.tensor(), targets.tensor(), {0, columns});
        CHECK_FALSE(std::isfinite(loss()));
        kernels().cross_entropy_with_gradient(stream, stats.tensor(), logits.tensor(), targets.tensor(),
                                              weights.tensor(), {0, columns});
        CHECK_FALSE(std::isfinite(loss()));
        CHECK_FALSE(std::isfinite(static_cast<double>(logits.at(0, at))));
      }
    }
  }
}
