// SPDX-License-Identifier: Apache-2.0
/// quantize against its formula, bit by bit, and products of fp8 matrices against plain sums.
#include "llmtrain/base/fp8.hpp"
#include "common/fp8_scale.hpp"
#include "kernels.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

/// A matrix in fp8, by rows and turned over, with its scale.
template <class T>
struct Rounded {
  Rounded(std::int64_t rows, std::int64_t cols) : q({rows, cols}), transposed({cols, rows}), scale({1}) {}

  void quantize(Buffer<Bf16>& x) {
    kernels().quantize(stream, q.tensor(), transposed.tensor(), scale.tensor(), x.tensor());
  }
  Tensor factor() {
    Tensor t = q.tensor();
    t.scale = &scale.at(0);
    return t;
  }
  double at(std::int64_t row, std::int64_t col) const {
    return static_cast<double>(static_cast<float>(q.at(row, col))) * static_cast<double>(scale.at(0));
  }

  Buffer<T> q, transposed;
  Buffer<float> scale;
};

template <class T>
void check_formula(Buffer<Bf16>& x) {
  float largest = 0;
  x.each([&](Bf16 v) { largest = std::max(largest, std::abs(static_cast<float>(v))); });
  const float scale = fp8_scale(largest, T::largest), multiplier = fp8_multiplier(scale);
  Rounded<T> got(x.rows(), x.cols());
  got.quantize(x);
  CHECK(got.scale.at(0) == scale);
  std::int64_t wrong = 0;
  for (std::int64_t r = 0; r < x.rows(); ++r) {
    for (std::int64_t c = 0; c < x.cols(); ++c) {
      const std::uint8_t bits = T(x.at(r, c) * multiplier).bits;
      wrong += (got.q.at(r, c).bits != bits ? 1 : 0) + (got.transposed.at(c, r).bits != bits ? 1 : 0);
    }
  }
  CHECK(wrong == 0);
  // Half a last place of T, or of its smallest number.
  const double step = std::ldexp(1.0, -T::mantissa_bits - 1), least = std::ldexp(1.0, -T::bias - T::mantissa_bits);
  std::int64_t far = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double exact = static_cast<double>(static_cast<float>(x.flat(i)));
    const double back = got.at(i / x.cols(), i % x.cols()), least_here = least * static_cast<double>(scale);
    far += std::abs(back - exact) > 1.0001 * (step * std::abs(exact) + least_here) ? 1 : 0;
  }
  CHECK(far == 0);
  CHECK(x.gaps_intact());
  Rounded<T> one(x.rows(), x.cols()), other(x.rows(), x.cols());
  kernels().quantize(stream, one.q.tensor(), {}, one.scale.tensor(), x.tensor());
  kernels().quantize(stream, {}, other.transposed.tensor(), other.scale.tensor(), x.tensor());
  CHECK(one.q.same_bits(got.q));
  CHECK(other.transposed.same_bits(got.transposed));
  CHECK(one.scale.at(0) == scale);
  CHECK(other.scale.at(0) == scale);
  // A scale that is known is taken as it is: found once more, or another one.
  for (const float known : {scale, 4 * scale}) {
    Rounded<T> again(x.rows(), x.cols());
    again.scale.at(0) = known;
    kernels().quantize(stream, again.q.tensor(), again.transposed.tensor(), again.scale.tensor(), x.tensor(),
                       Scale::known);
    CHECK(again.scale.at(0) == known);
    CHECK(again.q.same_bits(got.q) == (known == scale));
    CHECK(again.transposed.same_bits(got.transposed) == (known == scale));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("quantize rounds to the scale of the largest element, by rows and turned over", T, Fp8E4M3,
                   Fp8E5M2) {
  Random random(3);
  const std::int64_t sizes[][2] = {{16, 16}, {128, 128}, {48, 272}, {304, 144}, {1040, 528}, {16, 4096}, {2064, 16}};
  for (const auto& [rows, cols] : sizes) {
    for (const std::int64_t gap : {0, 8}) {
      INFO("rows ", rows, " cols ", cols, " gap ", gap);
      auto x = Buffer<Bf16>::random(random, {rows, cols}, cols + gap);
      check_formula<T>(x);
    }
  }
  // The last element alone is large; magnitudes at both ends of bf16.
  for (const double size : {1e-39, 1e-30, 1e4, 3e38}) {
    INFO("size ", size);
    auto x = Buffer<Bf16>::random(random, {144, 160}, 0, size / 100);
    x.at(143, 159) = Bf16(-size);
    check_formula<T>(x);
  }
}

TEST_CASE_TEMPLATE("quantize of zeros has scale 1, of what is not finite makes NaN", T, Fp8E4M3, Fp8E5M2) {
  Buffer<Bf16> x({32, 48});
  x.fill(Bf16(0.0F));
  Rounded<T> zero(32, 48);
  zero.quantize(x);
  CHECK(zero.scale.at(0) == 1.0F);
  Rounded<Fp8E4M3> ones(16, 48);
  Buffer<Bf16> one({16, 48});
  one.fill(Bf16(1.0F));
  ones.quantize(one);
  check_close("zeros", zero.q, std::vector<double>(32 * 48, 0.0), 0);
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    x.fill(Bf16(1.0F));
    x.at(31, 7) = Bf16(bad);
    Rounded<T> rounded(32, 48);
    rounded.quantize(x);
    CHECK(std::isnan(static_cast<float>(rounded.q.at(31, 7))));
    CHECK(std::isnan(static_cast<float>(rounded.transposed.at(7, 31))));
    Buffer<float> d({32, 16});
    kernels().gemm(stream, GemmForm::nt, d.tensor(), rounded.factor(), ones.factor());
    CHECK(std::isnan(d.at(31, 0)));
  }
}

TEST_CASE_TEMPLATE("products of fp8 matrices, written and added", A, Fp8E4M3, Fp8E5M2) {
  // Hopper adds up products with 14 bits and, but where both are E4M3, moves the sums to fp32 now and then. What is added to
  // bf16 is rounded before.
  constexpr double sum_error = std::is_same_v<A, Fp8E4M3> ? 4e-3 : 1e-3;
  Random random(4);
  const std::int64_t sizes[][3] = {{16, 16, 16}, {48, 272, 144}, {160, 32, 2064}, {528, 400, 1040}};
  for (const auto& [m, n, k] : sizes) {
    INFO("m ", m, " n ", n, " k ", k);
    auto x = Buffer<Bf16>::random(random, {m, k}, 0, 3), y = Buffer<Bf16>::random(random, {n, k}, 0, 0.02);
    Rounded<A> a(m, k);
    Rounded<Fp8E4M3> b(n, k);
    a.quantize(x);
    b.quantize(y);
    const auto check = [&]<class D>(D) {
      Buffer<D> d({m, n}, n + 16);
      d.each([&](D& v) { v = static_cast<D>(random.normal()); });
      std::vector<double> product, added;
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (std::int64_t l = 0; l < k; ++l) sum += a.at(i, l) * b.at(j, l);
          product.push_back(sum);
          added.push_back(sum + static_cast<double>(d.at(i, j)));
        }
      }
      const double bound = std::max(sum_error, 2 * tolerance<D>);
      kernels().gemm(stream, GemmForm::nt, d.tensor(), a.factor(), b.factor(), Write::accumulate);
      check_close("added", d, added, bound);
      kernels().gemm(stream, GemmForm::nt, d.tensor(), a.factor(), b.factor());
      check_close("product", d, product, bound);
      CHECK(d.gaps_intact());
    };
    check(float{});
    check(Bf16{});
  }
}

TEST_CASE("fp8 calls that no library takes are refused") {
  Random random(5);
  auto x = Buffer<Bf16>::random(random, {32, 48});
  Rounded<Fp8E4M3> a(32, 48);
  a.quantize(x);
  Buffer<float> d({32, 32}), bias({32});
  Buffer<Bf16> narrow({32, 24}), other({32, 32});
  Buffer<Fp8E4M3> q({32, 24});
  CHECK_THROWS_AS(kernels().gemm(stream, GemmForm::nt, d.tensor(), a.q.tensor(), a.factor()), Error);  // no scale
  CHECK_THROWS_AS(
      kernels().gemm(stream, GemmForm::nt, d.tensor(), a.factor(), a.factor(), Write::overwrite, bias.tensor()), Error);
  CHECK_THROWS_AS(kernels().gemm(stream, GemmForm::nt, d.tensor(), a.factor(), x.tensor()), Error);
  Tensor turned = a.transposed.tensor();
  turned.scale = &a.scale.at(0);
  CHECK_THROWS_AS(kernels().gemm(stream, GemmForm::nn, d.tensor(), a.factor(), turned), Error);
  CHECK_THROWS_AS(kernels().quantize(stream, q.tensor(), {}, a.scale.tensor(), narrow.tensor()), Error);
  CHECK_THROWS_AS(kernels().quantize(stream, {}, {}, a.scale.tensor(), x.tensor()), Error);
  CHECK_THROWS_AS(kernels().quantize(stream, other.tensor(), {}, a.scale.tensor(), other.tensor()), Error);
}
