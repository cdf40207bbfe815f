// SPDX-License-Identifier: Apache-2.0
/// bias_dropout and its backward: the right share is dropped, kept elements are scaled, the mask depends on the key, the
/// sample, the token and the feature alone, and forward and backward agree.
#include <set>

#include "kernels.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

Buffer<std::int64_t> numbers(std::vector<std::int64_t> values) {
  Buffer<std::int64_t> b({static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) b.at(static_cast<std::int64_t>(i)) = values[i];
  return b;
}

/// The mask of [samples * sequence, cols]: 1 where kept.
std::vector<double> mask(std::vector<std::int64_t> samples, std::int64_t cols, DropoutKey key) {
  Buffer<std::int64_t> ids = numbers(samples);
  const std::int64_t rows = ids.numel() * key.sequence;
  Buffer<double> x({rows, cols}), out({rows, cols});
  x.fill(1 - key.probability);
  kernels().bias_dropout(stream, out.tensor(), x.tensor(), {}, ids.tensor(), key);
  return out.values();
}

}  // namespace

TEST_CASE_TEMPLATE("bias_dropout keeps and scales, backward through the same mask", T, Bf16, float, double) {
  Random random(1);
  for (const auto& [sequence, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {7, 13}, {40, 521}}) {
    const DropoutKey key{0.25, 9, 3, sequence};
    Buffer<std::int64_t> samples = numbers({100, 7, 8});
    const std::int64_t rows = 3 * sequence;
    auto x = Buffer<T>::random(random, {rows, cols}, cols + 2), b = Buffer<T>::random(random, {cols}),
         d_out = Buffer<T>::random(random, {rows, cols}, cols + 1);
    const std::vector<double> kept = mask({100, 7, 8}, cols, key);
    for (const double k : kept) REQUIRE((k == 0 || k == 1));
    std::vector<double> expected, expected_d;
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double factor = kept[static_cast<std::size_t>(i)] / 0.75;
      expected.push_back(factor * (static_cast<double>(x.flat(i)) + static_cast<double>(b.at(i % cols))));
      expected_d.push_back(factor * static_cast<double>(d_out.flat(i)));
    }
    Buffer<T> out({rows, cols}, cols + 2), d_x({rows, cols});
    check_thread_invariance(
        out, [&] { kernels().bias_dropout(stream, out.tensor(), x.tensor(), b.tensor(), samples.tensor(), key); });
    check_close("out", out, expected, tolerance<T>);
    check_thread_invariance(
        d_x, [&] { kernels().dropout_backward(stream, d_x.tensor(), d_out.tensor(), samples.tensor(), key); });
    check_close("d_x", d_x, expected_d, tolerance<T>);
    kernels().bias_dropout(stream, x.tensor(), x.tensor(), b.tensor(), samples.tensor(), key);  // in place
    CHECK(x.same_bits(out));
  }
}

TEST_CASE("dropout drops the right share, everywhere alike") {
  const std::int64_t sequence = 64, cols = 256;
  for (const double p : {0.1, 0.5, 0.9}) {
    const std::vector<double> kept = mask({0, 1, 2, 3}, cols, {p, 1, 0, sequence});
    const auto share = [&](auto&& chosen) {
      double sum = 0, count = 0;
      for (std::size_t i = 0; i < kept.size(); ++i) {
        if (!chosen(static_cast<std::int64_t>(i))) continue;
        sum += kept[i];
        count += 1;
      }
      return (sum / count - (1 - p)) / std::sqrt(p * (1 - p) / count);  // in standard deviations
    };
    CHECK(std::abs(share([](std::int64_t) { return true; })) < 4);
    for (std::int64_t lane = 0; lane < 4; ++lane) {
      CHECK(std::abs(share([&](std::int64_t i) { return i % 4 == lane; })) < 4);
    }
    for (std::int64_t sample = 0; sample < 4; ++sample) {
      CHECK(std::abs(share([&](std::int64_t i) { return i / (sequence * cols) == sample; })) < 4);
    }
  }
}

TEST_CASE("the mask is a function of seed, operation, sample, token and feature") {
  const DropoutKey key{0.5, 5, 2, 8};
  const std::int64_t cols = 12;
  const std::vector<double> whole = mask({40, 41}, cols, key);
  CHECK(mask({40, 41}, cols, key) == whole);
  const auto half = static_cast<std::ptrdiff_t>(8 * cols);
  CHECK(mask({41}, cols, key) == std::vector<double>(whole.begin() + half, whole.end()));
  std::set<std::vector<double>> masks{mask({40}, cols, key)};
  for (const DropoutKey& other : {DropoutKey{0.5, 6, 2, 8}, DropoutKey{0.5, 5, 3, 8}}) {
    masks.insert(mask({40}, cols, other));
  }
  masks.insert(mask({41}, cols, key));
  masks.insert(mask({40 + (std::int64_t{1} << 40)}, cols, key));  // the high bits count too
  CHECK(masks.size() == 5);

  // Rows [3, 13) of the micro-batch as a slice.
  Buffer<std::int64_t> samples = numbers({40, 41});
  Buffer<double> x({10, cols}), out({10, cols});
  x.fill(0.5);
  DropoutKey slice = key;
  slice.first_token = 3;
  kernels().bias_dropout(stream, out.tensor(), x.tensor(), {}, samples.tensor(), slice);
  CHECK(out.values() == std::vector<double>(whole.begin() + 3 * cols, whole.begin() + 13 * cols));
}

TEST_CASE("dropout passes NaN on and refuses what does not fit") {
  Buffer<std::int64_t> samples = numbers({0});
  Buffer<float> x({4, 8}), out({4, 8});  // poisoned with NaN
  kernels().bias_dropout(stream, out.tensor(), x.tensor(), {}, samples.tensor(), {0.5, 1, 0, 4});
  for (std::int64_t i = 0; i < out.numel(); ++i) CHECK(std::isnan(out.flat(i)));
  const auto call = [&](const DropoutKey& key) {
    kernels().bias_dropout(stream, out.tensor(), x.tensor(), {}, samples.tensor(), key);
  };
  CHECK_THROWS_AS(call({1.0, 1, 0, 4}), Error);
  CHECK_THROWS_AS(call({0.5, 1, 65536, 4}), Error);
  CHECK_THROWS_WITH(call({0.5, 1, 0, 3}), doctest::Contains("samples must"));
  CHECK_THROWS_WITH(call({0.5, 1, 0, 4, 1}), doctest::Contains("samples must"));
}

TEST_CASE("dropout_backward is the gradient") {
  Random random(2);
  Buffer<std::int64_t> samples = numbers({3});
  const DropoutKey key{0.3, 1, 1, 6};
  auto x = Buffer<double>::random(random, {6, 5}), d_out = Buffer<double>::random(random, {6, 5});
  Buffer<double> out({6, 5}), d_x({6, 5});
  kernels().dropout_backward(stream, d_x.tensor(), d_out.tensor(), samples.tensor(), key);
  const auto loss = [&] {
    kernels().bias_dropout(stream, out.tensor(), x.tensor(), {}, samples.tensor(), key);
    return weighted_sum(d_out, out);
  };
  check_gradient(random, {{&x, d_x.values()}}, loss, Degree::at_most_2);
}
