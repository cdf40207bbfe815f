// SPDX-License-Identifier: Apache-2.0
/// rope on packed views: rotation by position, its inverse, untouched neighbours, and its gradient.
#include "kernels.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

struct Case {
  std::int64_t tokens, heads, head_dim, leading;
};
// In packed storage; head_dim beyond one chunk of the kernel; dense.
const std::vector<Case> cases = {{5, 2, 4, 17}, {40, 3, 64, 3 * 64 + 10}, {3, 2, 300, 0}, {33, 4, 128, 0}};

template <class T>
Buffer<StatsOf<T>> make_table(std::int64_t positions, std::int64_t head_dim) {
  Buffer<StatsOf<T>> table({positions, head_dim / 2, 2});
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      table.at(p, 2 * i) = static_cast<StatsOf<T>>(std::cos(angle));
      table.at(p, 2 * i + 1) = static_cast<StatsOf<T>>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace

TEST_CASE_TEMPLATE("rope rotates pairs of halves by position", T, Bf16, float, double) {
  Random random(1);
  for (const Case& c : cases) {
    const std::int64_t half = c.head_dim / 2;
    auto table = make_table<T>(50, c.head_dim);
    auto positions = Buffer<std::int32_t>::integers(random, {c.tokens}, 0, 50);
    const auto before = Buffer<T>::random(random, {c.tokens, c.heads, c.head_dim}, c.leading);
    auto x = before;
    std::vector<double> expected = before.values();
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      for (std::int64_t h = 0; h < c.heads; ++h) {
        for (std::int64_t i = 0; i < half; ++i) {
          const std::int64_t low = h * c.head_dim + i, high = low + half;
          const double a = before.at(t, low), b = before.at(t, high);
          const double cosine = table.at(positions.at(t), 2 * i), sine = table.at(positions.at(t), 2 * i + 1);
          expected[static_cast<std::size_t>(t * x.cols() + low)] = a * cosine - b * sine;
          expected[static_cast<std::size_t>(t * x.cols() + high)] = b * cosine + a * sine;
        }
      }
    }
    check_thread_invariance(x, [&] {
      x = before;
      kernels().rope(stream, x.tensor(), table.tensor(), positions.tensor(), Rotation::forward);
    });
    check_close("rope", x, expected, tolerance<T>);
    kernels().rope(stream, x.tensor(), table.tensor(), positions.tensor(), Rotation::backward);
    check_close("inverse", x, before.values(), 4 * tolerance<T>);  // each pair is rounded twice
  }
}

TEST_CASE("the backward rotation is the gradient") {
  Random random(2);
  const Case c{4, 2, 6, 15};
  auto table = make_table<double>(9, c.head_dim);
  auto positions = Buffer<std::int32_t>::integers(random, {c.tokens}, 0, 9);
  auto x = Buffer<double>::random(random, {c.tokens, c.heads, c.head_dim}, c.leading);
  const auto d_out = Buffer<double>::random(random, {c.tokens, c.heads, c.head_dim}, c.leading);
  auto d_x = d_out;
  kernels().rope(stream, d_x.tensor(), table.tensor(), positions.tensor(), Rotation::backward);
  const auto loss = [&] {
    auto y = x;
    kernels().rope(stream, y.tensor(), table.tensor(), positions.tensor(), Rotation::forward);
    return weighted_sum(d_out, y);
  };
  check_gradient(random, {{&x, d_x.values()}}, loss, Degree::at_most_2);
}

TEST_CASE("rope refuses a position beyond its table") {
  if (device_kind() != DeviceKind::cpu) return;  // elsewhere the host does not see positions
  Random random(3);
  auto table = make_table<float>(4, 8);
  auto x = Buffer<float>::random(random, {2, 1, 8});
  Buffer<std::int32_t> positions({2});
  positions.at(0) = 3;
  positions.at(1) = 4;
  CHECK_THROWS_WITH_AS(kernels().rope(stream, x.tensor(), table.tensor(), positions.tensor(), Rotation::forward),
                       doctest::Contains("token 1 has position 4"), Error);
}
