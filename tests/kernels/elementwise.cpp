// SPDX-License-Identifier: Apache-2.0
/// add, sum_parts, convert, copy and fill: strided, dense, in place, and over more than one block.
#include "kernels.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

struct Size {
  std::int64_t rows, cols, leading;
};
const std::vector<Size> sizes = {{1, 1, 0}, {3, 5, 9}, {7, 33, 0}, {2, 20001, 20003}, {130, 257, 0}};

}  // namespace

TEST_CASE_TEMPLATE("add sums strided tensors, also in place", T, Bf16, float, double) {
  Random random(1);
  for (const auto& [rows, cols, leading] : sizes) {
    auto a = Buffer<T>::random(random, {rows, cols}, leading), b = Buffer<T>::random(random, {rows, cols});
    Buffer<T> out({rows, cols}, leading);
    std::vector<double> expected = a.values();
    for (std::int64_t i = 0; i < b.numel(); ++i) expected[static_cast<std::size_t>(i)] += b.flat(i);
    check_thread_invariance(out, [&] { kernels().add(stream, out.tensor(), a.tensor(), b.tensor()); });
    check_close("add", out, expected, tolerance<T>);
    kernels().add(stream, a.tensor(), a.tensor(), b.tensor());
    CHECK(a.same_bits(out));
  }
}

TEST_CASE_TEMPLATE("sum_parts adds in order and rounds once, also into a part and onto what is there", T, Bf16, float,
                   double) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Random random(4);
  for (const std::int64_t count : {1, 2, 3, 8, 16}) {
    for (const std::int64_t n : {1, 33, 5000, 40000, 70001}) {
      auto all = Buffer<T>::random(random, {count, n});
      const auto before = Buffer<T>::random(random, {n});
      const auto before_wide = Buffer<Wide>::random(random, {n});
      std::vector<Tensor> parts;
      for (std::int64_t part = 0; part < count; ++part) parts.push_back(all.tensor().rows_at(part, 1).flat());
      std::vector<double> sums(static_cast<std::size_t>(n)), added = sums, added_wide = sums;
      for (std::int64_t i = 0; i < n; ++i) {
        auto sum = static_cast<Wide>(all.flat(i));
        for (std::int64_t part = 1; part < count; ++part) sum += static_cast<Wide>(all.flat(part * n + i));
        const auto at = static_cast<std::size_t>(i);
        sums[at] = static_cast<double>(T(sum));
        added[at] = static_cast<double>(T(sum + static_cast<Wide>(before.flat(i))));
        added_wide[at] = static_cast<double>(sum + static_cast<Wide>(before_wide.flat(i)));
      }
      Buffer<T> out({n});
      Buffer<Wide> wide({n});
      check_thread_invariance(out, [&] { kernels().sum_parts(stream, out.tensor(), parts); });
      check_close("sum_parts", out, sums, 0);
      out = before;
      wide = before_wide;
      kernels().sum_parts(stream, out.tensor(), parts, Write::accumulate);
      check_close("sum_parts, added", out, added, 0);
      kernels().sum_parts(stream, wide.tensor(), parts, Write::accumulate);
      check_close("sum_parts, added to wider ones", wide, added_wide, 0);
      kernels().sum_parts(stream, parts.back(), parts);
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        wrong += static_cast<double>(all.flat((count - 1) * n + i)) != sums[static_cast<std::size_t>(i)];
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("sum_parts takes any number of parts") {
  Random random(6);
  constexpr std::int64_t count = 37, n = 100;
  auto all = Buffer<float>::random(random, {count, n});
  std::vector<Tensor> parts;
  for (std::int64_t part = 0; part < count; ++part) parts.push_back(all.tensor().rows_at(part, 1).flat());
  std::vector<double> sums(n);
  for (std::int64_t i = 0; i < count * n; ++i) sums[static_cast<std::size_t>(i % n)] += all.flat(i);
  Buffer<float> out({n});
  kernels().sum_parts(stream, out.tensor(), parts);
  check_close("sum_parts", out, sums, tolerance<float>);
  CHECK_THROWS_AS(kernels().sum_parts(stream, out.tensor().flat(0, 50), parts), Error);
}

TEST_CASE("convert rounds to nearest and keeps what fits") {
  Random random(3);
  for (const auto& [rows, cols, leading] : sizes) {
    auto wide = Buffer<double>::random(random, {rows, cols}, leading);
    Buffer<float> narrow({rows, cols});
    Buffer<double> back({rows, cols}, leading);
    kernels().convert(stream, narrow.tensor(), wide.tensor());
    kernels().convert(stream, back.tensor(), narrow.tensor());
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < wide.numel(); ++i) {
      wrong +=
          narrow.flat(i) != static_cast<float>(wide.flat(i)) || back.flat(i) != static_cast<double>(narrow.flat(i));
    }
    CHECK(wrong == 0);
    CHECK(back.gaps_intact());
  }
}

namespace {

/// The bf16 number next to a finite x, found among the two around it.
double nearest_bf16(double x) {
  const int exponent = x == 0 ? -126 : std::max(-126, std::ilogb(x));
  const double unit = std::ldexp(1.0, exponent - 7), low = std::floor(x / unit) * unit, high = low + unit;
  double near = low;
  if (x - low > high - x || (x - low == high - x && std::fmod(std::abs(low / unit), 2) == 1)) near = high;
  return std::abs(near) >= 0x1p128 ? std::copysign(std::numeric_limits<double>::infinity(), x) : near;
}

}  // namespace

TEST_CASE("convert to bf16 rounds once to nearest even, and keeps NaN and what overflows") {
  Random random(5);
  std::vector<double> values{0,        -0.0,  1,      1 + 0x1p-8, 1 + 3 * 0x1p-8, 0x1.fep127, 0x1.ffp127, -0x1.fffp127,
                             0x1p-133, 1e300, -1e300, 1e-300,     0x1.8p-134,     0x1p-134};
  for (int i = 0; i < 2000; ++i) {
    const double x = static_cast<double>(Bf16(random.normal())), half = std::ldexp(std::abs(x), -9);
    for (const double offset : {0.5, 0.999999999999, 1.0, 1.000000000001, 1.5}) values.push_back(x + offset * half);
  }
  const auto n = static_cast<std::int64_t>(values.size());
  Buffer<double> wide({n}), back({n});
  Buffer<float> single({n});
  Buffer<Bf16> from_wide({n}), from_single({n});
  for (std::int64_t i = 0; i < n; ++i) {
    wide.at(i) = values[static_cast<std::size_t>(i)];
    single.at(i) = static_cast<float>(wide.at(i));
  }
  kernels().convert(stream, from_wide.tensor(), wide.tensor());
  kernels().convert(stream, from_single.tensor(), single.tensor());
  kernels().convert(stream, back.tensor(), from_wide.tensor());
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    wrong += back.at(i) != nearest_bf16(wide.at(i));
    if (std::isfinite(single.at(i))) wrong += static_cast<double>(from_single.at(i)) != nearest_bf16(single.at(i));
    wrong += std::signbit(back.at(i)) != std::signbit(wide.at(i));
  }
  CHECK(wrong == 0);
  for (const std::uint32_t bits : {0x7f800001u, 0xffffffffu, 0x7fc00000u}) {
    CHECK(std::isnan(static_cast<float>(Bf16(bits_as<float>(bits)))));
  }
  CHECK(std::isnan(static_cast<float>(Bf16(std::numeric_limits<double>::quiet_NaN()))));
}

TEST_CASE("copy moves every dtype between leading dimensions") {
  Random random(4);
  for (const auto& [rows, cols, leading] : sizes) {
    auto from = Buffer<float>::random(random, {rows, cols}, leading);
    Buffer<float> to({rows, cols}, leading == 0 ? 0 : leading + 3);
    kernels().copy(stream, to.tensor(), from.tensor());
    check_close("copy", to, from.values(), 0);
    auto ids = Buffer<std::int32_t>::integers(random, {rows, cols}, -5, 1000);
    Buffer<std::int32_t> ids_to({rows, cols}, cols + 1);
    kernels().copy(stream, ids_to.tensor(), ids.tensor());
    check_close("copy of ids", ids_to, ids.values(), 0);
  }
}

TEST_CASE_TEMPLATE("fill sets all elements and no gap", T, Bf16, float, double, std::int32_t, std::int64_t) {
  for (const auto& [rows, cols, leading] : sizes) {
    Buffer<T> to({rows, cols}, leading);
    kernels().fill(stream, to.tensor(), 3);
    check_close("fill", to, std::vector<double>(static_cast<std::size_t>(rows * cols), 3.0), 0);
  }
  std::vector<unsigned char> bytes(100, 7);
  kernels().fill(stream, Tensor::dense(bytes.data() + 1, DType::uint8, {98}), 2);
  CHECK(bytes[0] == 7);
  CHECK(bytes[1] == 2);
  CHECK(bytes[98] == 2);
  CHECK(bytes[99] == 7);
}
