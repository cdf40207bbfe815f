// SPDX-License-Identifier: Apache-2.0
/// Philox against its authors' known answers, and the normal numbers: exactness of their pieces, moments, tails,
/// distribution, independence.
#include "llmtrain/base/philox.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace llmtrain;

namespace {

void check_block(PhiloxWords counter, std::uint32_t key0, std::uint32_t key1, PhiloxWords expected) {
  const PhiloxWords got = philox4x32(counter, key0, key1);
  for (int i = 0; i < 4; ++i) CHECK(got.word[i] == expected.word[i]);
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

std::vector<double> numbers(std::size_t n, std::uint64_t seed) {
  std::vector<double> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = normal_number(seed, 99, i);
  return x;
}

}  // namespace

TEST_CASE("philox4x32-10 gives the known answers of Random123") {
  check_block({{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  const std::uint32_t ones = 0xffffffff;
  check_block({{ones, ones, ones, ones}}, ones, ones, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  check_block({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0,
              {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST_CASE("seed, stream and index all matter, in all their bits") {
  const auto equal = [](PhiloxWords a, PhiloxWords b) { return std::equal(a.word, a.word + 4, b.word); };
  const PhiloxWords base = random_block(5, 6, 7);
  CHECK(equal(base, random_block(5, 6, 7)));
  for (const std::uint64_t bit :
       {std::uint64_t{1}, std::uint64_t{1} << 31, std::uint64_t{1} << 32, std::uint64_t{1} << 63}) {
    CHECK_FALSE(equal(base, random_block(5 ^ bit, 6, 7)));
    CHECK_FALSE(equal(base, random_block(5, 6 ^ bit, 7)));
    CHECK_FALSE(equal(base, random_block(5, 6, 7 ^ bit)));
  }
}

TEST_CASE("the logarithm, sine and cosine are good to a few ulp") {
  double worst_log = 0, worst_sine = 0, worst_cosine = 0;
  for (int i = 1; i <= 100000; ++i) {
    const double u = i % 2 == 0 ? i / 100000.0 : std::ldexp(1 + i / 100000.0, -(i % 54));
    const double exact = std::log(u);
    worst_log = std::max(worst_log, std::abs(exact_log(u) - exact) / std::max(std::abs(exact), 0x1p-53));
    const double x = (i / 50000.0 - 1) * 0.7853981633974483;
    double sine = 0, cosine = 0;
    exact_sin_cos(x, sine, cosine);
    worst_sine = std::max(worst_sine, std::abs(sine - std::sin(x)) / std::max(std::abs(x), 1e-300));
    worst_cosine = std::max(worst_cosine, std::abs(cosine - std::cos(x)));
  }
  CHECK(exact_log(1.0) == 0);
  CHECK(worst_log < 1e-15);
  CHECK(worst_sine < 3e-16);
  CHECK(worst_cosine < 3e-16);
}

TEST_CASE("a million normal numbers have the moments, tails and distribution of N(0, 1)") {
  const std::size_t n = 1000000;
  std::vector<double> x = numbers(n, 1234);
  const double count = static_cast<double>(n);
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, neighbours = 0;
  int beyond3 = 0, beyond4 = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double v = x[i];
    m1 += v;
    m2 += v * v;
    m3 += v * v * v;
    m4 += v * v * v * v;
    neighbours += v * x[(i + 1) % n];
    beyond3 += std::abs(v) > 3;
    beyond4 += std::abs(v) > 4;
  }
  const double root = std::sqrt(count);  // bounds: 4 standard deviations of each estimate
  CHECK(std::abs(m1 / count) < 4 / root);
  CHECK(std::abs(m2 / count - 1) < 4 * std::sqrt(2.0) / root);
  CHECK(std::abs(m3 / count) < 4 * std::sqrt(15.0) / root);
  CHECK(std::abs(m4 / count - 3) < 4 * std::sqrt(96.0) / root);
  CHECK(std::abs(neighbours / count) < 4 / root);
  CHECK(std::abs(beyond3 - 2699.8) < 4 * std::sqrt(2699.8));
  CHECK(std::abs(beyond4 - 63.3) < 4 * std::sqrt(63.3));

  std::sort(x.begin(), x.end());
  double distance = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double cdf = normal_cdf(x[i]), k = static_cast<double>(i);
    distance = std::max({distance, cdf - k / count, (k + 1) / count - cdf});
  }
  CHECK(distance * root < 1.95);  // Kolmogorov: exceeded once in a thousand
  CHECK(distance * root > 0.2);   // and not suspiciously regular
}

TEST_CASE("both numbers of a pair fill all four quadrants evenly") {
  int quadrants[4] = {};
  const int n = 40000;
  for (int i = 0; i < n; ++i) {
    const NormalPair p = normal_pair(1, 2, static_cast<std::uint64_t>(i));
    ++quadrants[(p.first < 0 ? 1 : 0) + (p.second < 0 ? 2 : 0)];
  }
  for (const int q : quadrants) CHECK(std::abs(q - n / 4) < 5 * std::sqrt(n * 0.1875));
}

TEST_CASE("the bits of the normal numbers are fixed") {
  // Recorded once: initial weights of published runs must not change with compilers or releases.
  const double expected[] = {0x1.4a0c1932feaf9p-4, -0x1.407b4dd31bca4p-1, 0x1.4198999546d5p+0, -0x1.e200c28f35358p-2};
  for (std::uint64_t i = 0; i < 4; ++i) CHECK(normal_number(1234, 0x0123456789abcdefu, i) == expected[i]);
}
