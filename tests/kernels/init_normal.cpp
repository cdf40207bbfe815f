// SPDX-License-Identifier: Apache-2.0
/// init_normal: an element's bits depend on the key and its global index alone, however the matrix is cut.
#include "kernels.hpp"
#include "llmtrain/base/philox.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

TEST_CASE_TEMPLATE("every cut of a matrix holds the same bits", T, Bf16, float, double) {
  Random random(1);
  const std::int64_t rows = 13, cols = 2077;  // odd: pairs straddle rows; more than one block of columns
  const InitKey key{1234, 0xfeedfacecafebeefu};
  Buffer<T> whole({rows, cols});
  check_thread_invariance(whole, [&] { kernels().init_normal(stream, whole.tensor(), key, {0, 0, cols}, 0.02); });
  for (int cut = 0; cut < 20; ++cut) {
    const std::int64_t row = random.below(rows), col = random.below(cols);
    const std::int64_t n = 1 + random.below(rows - row), m = 1 + random.below(cols - col);
    Buffer<T> part({n, m}, m + 2), expected({n, m}, m + 2);
    for (std::int64_t r = 0; r < n; ++r) {
      for (std::int64_t c = 0; c < m; ++c) expected.at(r, c) = whole.at(row + r, col + c);
    }
    kernels().init_normal(stream, part.tensor(), key, {row, col, cols}, 0.02);
    CHECK(part.same_bits(expected));
  }
  Buffer<T> line({40});
  kernels().init_normal(stream, line.tensor(), key, {1, 3, cols}, 0.02);
  for (std::int64_t i = 0; i < 40; ++i) CHECK(line.at(i) == whole.at(1, 3 + i));
}

TEST_CASE_TEMPLATE("elements are the scaled normal numbers of their index", T, Bf16, float, double) {
  Buffer<T> x({3, 101});
  kernels().init_normal(stream, x.tensor(), {7, 8}, {5, 0, 101}, 0.5);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    wrong += x.flat(i) != static_cast<T>(0.5 * normal_number(7, 8, static_cast<std::uint64_t>(5 * 101 + i)));
  }
  CHECK(wrong == 0);
}

TEST_CASE("keys give different numbers") {
  Buffer<double> a({1000}), b({1000}), c({1000});
  kernels().init_normal(stream, a.tensor(), {1, 1}, {0, 0, 1000}, 1);
  kernels().init_normal(stream, b.tensor(), {2, 1}, {0, 0, 1000}, 1);
  kernels().init_normal(stream, c.tensor(), {1, 2}, {0, 0, 1000}, 1);
  double ab = 0, ac = 0, bc = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    ab += a.at(i) * b.at(i);
    ac += a.at(i) * c.at(i);
    bc += b.at(i) * c.at(i);
  }
  for (const double correlation : {ab, ac, bc}) CHECK(std::abs(correlation) < 5 * std::sqrt(1000.0));
}

TEST_CASE("init_normal refuses a block outside its matrix") {
  Buffer<float> x({2, 10});
  CHECK_THROWS_AS(kernels().init_normal(stream, x.tensor(), {1, 1}, {0, 1, 10}, 1), Error);
}
