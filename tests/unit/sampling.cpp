// SPDX-License-Identifier: Apache-2.0
/// Choosing tokens: greedy, by temperature, from the nucleus; and the uniform numbers behind the draws.
#include "llmtrain/driver/sampling.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>
#include <vector>

using namespace llmtrain;

namespace {

/// Logits of these probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3));
  return logits;
}

constexpr int draws = 20000;

/// How often each id is drawn with evenly spread uniform numbers, as a fraction.
std::map<std::int32_t, double> frequencies(const std::vector<float>& logits, const Sampling& sampling) {
  std::map<std::int32_t, double> found;
  for (int i = 0; i < draws; ++i) found[choose_token(logits, sampling, (i + 0.5) / draws)] += 1.0 / draws;
  return found;
}

const std::vector<float> five = logits_of({0.1, 0.4, 0.05, 0.25, 0.2});

}  // namespace

TEST_CASE("temperature 0 takes the largest logit, the lowest id among equals") {
  const std::vector<float> logits{1, 3, -2, 3};
  for (const double uniform : {0.0, 0.5, 0.999}) CHECK(choose_token(logits, {0, 1}, uniform) == 1);
}

TEST_CASE("draws follow softmax(logits / temperature)") {
  const auto at_one = frequencies(five, {1, 1});
  CHECK(at_one.at(1) == doctest::Approx(0.4).epsilon(1e-3));
  CHECK(at_one.at(2) == doctest::Approx(0.05).epsilon(1e-2));
  const auto at_half = frequencies(five, {0.5, 1});  // probabilities squared, normalised by their sum 0.275
  CHECK(at_half.at(1) == doctest::Approx(0.16 / 0.275).epsilon(1e-3));
  CHECK(at_half.at(0) == doctest::Approx(0.01 / 0.275).epsilon(1e-2));
}

TEST_CASE("top-p keeps the fewest most likely tokens that reach it, in their proportions") {
  const auto two = frequencies(five, {1, 0.6});  // 0.4 + 0.25
  CHECK(two.size() == 2);
  CHECK(two.at(1) == doctest::Approx(0.4 / 0.65).epsilon(1e-3));
  CHECK(two.at(3) == doctest::Approx(0.25 / 0.65).epsilon(1e-3));
  CHECK(frequencies(five, {1, 0.7}).size() == 3);
  CHECK(frequencies(five, {1, 0.96}).size() == 5);
  CHECK(frequencies(five, {1, 1e-9}) == frequencies(five, {0, 1}));  // one at least
}

TEST_CASE("top-p counts at the temperature of the draw; of equal tokens the lower ids stay") {
  CHECK(frequencies(five, {0.5, 0.6}).size() == 2);  // 0.16 / 0.275 = 0.58
  CHECK(frequencies(five, {0.5, 0.55}).size() == 1);
  const auto equal = frequencies({0, 0, 0, 0}, {1, 0.5});
  CHECK(equal.size() == 2);
  CHECK(equal.at(0) == doctest::Approx(0.5));
  CHECK(equal.at(1) == doctest::Approx(0.5));
}

TEST_CASE("the largest uniform number never draws a token of no probability") {
  const float none = -INFINITY;
  CHECK(choose_token(std::vector<float>{0, 1, none, none}, {1, 1}, 0x1.fffffffffffffp-1) == 1);
  CHECK(choose_token(five, {1, 0.6}, 0x1.fffffffffffffp-1) == 3);
}

TEST_CASE("uniform numbers are in [0, 1), even, and differ by seed and index") {
  std::set<double> seen;
  double sum = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    for (const std::uint64_t seed : {1, 2}) {
      const double number = uniform_number(seed, i);
      CHECK(number >= 0);
      CHECK(number < 1);
      sum += number;
      seen.insert(number);
    }
  }
  CHECK(seen.size() == 2000);
  CHECK(sum / 2000 == doctest::Approx(0.5).epsilon(0.05));  // 0.5 +- 0.0065 (one standard deviation)
  CHECK(uniform_number(1, 5) == uniform_number(1, 5));
}
