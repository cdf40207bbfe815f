// SPDX-License-Identifier: Apache-2.0
/// gemm: forms, writes, strides and odd sizes against plain loops, and equal bits from run to run.
#include "cpu/gemm.hpp"

#include "kernels.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

constexpr GemmForm forms[] = {GemmForm::nt, GemmForm::nn, GemmForm::tn};

template <class T, class D = T>
struct Case {
  Case(Random& random, GemmForm form_, std::int64_t m, std::int64_t n, std::int64_t k_, std::int64_t gap)
      : form(form_),
        k(k_),
        a(form == GemmForm::tn ? Buffer<T>::random(random, {k, m}, m + gap)
                               : Buffer<T>::random(random, {m, k}, k + gap)),
        b(form == GemmForm::nt ? Buffer<T>::random(random, {n, k}, k + 2 * gap)
                               : Buffer<T>::random(random, {k, n}, n + 2 * gap)),
        d({m, n}, n + 3 * gap) {}

  /// Plain sums in fp64, added to `start` (empty: to nothing).
  std::vector<double> reference(const std::vector<double>& start) const {
    std::vector<double> sums;
    for (std::int64_t i = 0; i < d.rows(); ++i) {
      for (std::int64_t j = 0; j < d.cols(); ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          const double x = form == GemmForm::tn ? a.at(l, i) : a.at(i, l);
          sum += x * (form == GemmForm::nt ? b.at(j, l) : b.at(l, j));
        }
        sums.push_back(sum + (start.empty() ? 0 : start[sums.size()]));
      }
    }
    return sums;
  }

  void run(Write write) { kernels().gemm(stream, form, d.tensor(), a.tensor(), b.tensor(), write); }

  GemmForm form;
  std::int64_t k;
  Buffer<T> a, b;
  Buffer<D> d;
};

template <class T, class D = T>
void check_forms(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t gap) {
  INFO("m ", m, " n ", n, " k ", k, " gap ", gap);
  Random random(static_cast<std::uint64_t>(m * 1000003 + n * 1009 + k));
  for (const GemmForm form : forms) {
    INFO("form ", static_cast<int>(form));
    Case<T, D> c(random, form, m, n, k, gap);
    c.run(Write::overwrite);  // over NaN
    check_close("overwrite", c.d, c.reference({}), tolerance<D>);
    c.d.each([&](D& x) { x = static_cast<D>(random.normal()); });
    const auto expected = c.reference(c.d.values());
    c.run(Write::accumulate);
    check_close("accumulate", c.d, expected, tolerance<D>);
    CHECK(c.a.gaps_intact());
    CHECK(c.b.gaps_intact());
  }
}

/// Whether oneDNN can multiply bf16 here, be it slower than fp32.
bool dnnl_multiplies_bf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

}  // namespace

TEST_CASE_TEMPLATE("gemm equals plain loops for all forms, writes, strides and odd sizes", T, float, double) {
  const std::int64_t sizes[][3] = {{1, 1, 1},      {1, 17, 33},    {19, 1, 5},    {7, 9, 1},     {5, 3, 2},
                                   {6, 8, 16},     {13, 31, 7},    {64, 64, 64},  {97, 41, 130}, {100, 193, 3},
                                   {33, 200, 257}, {512, 40, 300}, {40, 512, 300}};  // rows of 2 KiB
  for (const auto& [m, n, k] : sizes)
    for (const std::int64_t gap : {0, 3}) check_forms<T>(m, n, k, gap);
}

TEST_CASE("products of the other two forms are the gradients of a layer's product") {
  Random random(5);
  auto x = Buffer<double>::random(random, {7, 5}), w = Buffer<double>::random(random, {4, 5});
  const auto d_y = Buffer<double>::random(random, {7, 4});
  auto d = d_y;
  Buffer<double> y({7, 4}), d_x({7, 5}), d_w({4, 5});
  kernels().gemm(stream, GemmForm::nn, d_x.tensor(), d.tensor(), w.tensor(), Write::overwrite);
  kernels().gemm(stream, GemmForm::tn, d_w.tensor(), d.tensor(), x.tensor(), Write::overwrite);
  const auto loss = [&] {
    kernels().gemm(stream, GemmForm::nt, y.tensor(), x.tensor(), w.tensor(), Write::overwrite);
    return weighted_sum(d_y, y);
  };
  check_gradient(random, {{&x, d_x.values()}, {&w, d_w.values()}}, loss, Degree::at_most_2);
}

TEST_CASE_TEMPLATE("gemm of bf16 into bf16 and fp32, within one block and over several", D, Bf16, float) {
  const std::int64_t sizes[][3] = {{1, 1, 1},      {1, 17, 33},   {19, 1, 5},      {13, 31, 7},
                                   {33, 200, 257}, {3, 1030, 40}, {1027, 2, 2050}, {5, 7, 1025}};
  for (const auto& [m, n, k] : sizes)
    for (const std::int64_t gap : {0, 3}) check_forms<Bf16, D>(m, n, k, gap);
}

TEST_CASE_TEMPLATE("oneDNN's products and our own, whichever the CPU takes", T, Bf16, float) {
  if (std::is_same_v<T, Bf16> && !dnnl_multiplies_bf16()) return;
  Random random(7);
  for (const GemmForm form : forms) {
    INFO("form ", static_cast<int>(form));
    for (const auto product : {&gemm_dnnl, &gemm_tiled}) {
      Case<T> c(random, form, 65, 48, 130, 2);
      product(form, {65, 48, 130}, c.d.tensor(), c.a.tensor(), c.b.tensor(), Write::overwrite);
      check_close("product", c.d, c.reference({}), tolerance<T>);
      Case<T, float> wide(random, form, 65, 48, 130, 2);
      wide.d.fill(0.5F);
      const auto expected = wide.reference(wide.d.values());
      product(form, {65, 48, 130}, wide.d.tensor(), wide.a.tensor(), wide.b.tensor(), Write::accumulate);
      check_close("sum of products", wide.d, expected, tolerance<float>);
    }
  }
}

TEST_CASE("sums of bf16 products are not rounded on their way") {
  const std::int64_t k = 3000;  // in bf16, 256 + 1 is 256
  Buffer<Bf16> a({2, k}), b({2, k}), d({2, 2});
  for (Buffer<Bf16>* x : {&a, &b}) x->fill(Bf16(1));
  kernels().gemm(stream, GemmForm::nt, d.tensor(), a.tensor(), b.tensor(), Write::overwrite);
  check_close("sum", d, std::vector<double>(4, Bf16(3000.0)), 0);
  Buffer<float> wide({2, 2});
  wide.fill(0.25F);
  kernels().gemm(stream, GemmForm::nt, wide.tensor(), a.tensor(), b.tensor(), Write::accumulate);
  check_close("fp32 sum", wide, std::vector<double>(4, 3000.25), 0);
}

TEST_CASE_TEMPLATE("gemm reads column slices of packed tensors", T, float, double) {
  Random random(5);
  auto packed = Buffer<T>::random(random, {21, 40});
  auto weight = Buffer<T>::random(random, {11, 8});
  Buffer<T> d({21, 11});
  kernels().gemm(stream, GemmForm::nt, d.tensor(), packed.tensor().cols_at(24, 8).with_inner({2, 4}), weight.tensor(),
                 Write::overwrite);
  std::vector<double> expected;
  for (std::int64_t i = 0; i < 21; ++i) {
    for (std::int64_t j = 0; j < 11; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < 8; ++l) sum += static_cast<double>(packed.at(i, 24 + l)) * weight.at(j, l);
      expected.push_back(sum);
    }
  }
  check_close("slice", d, expected, tolerance<T>);
}

TEST_CASE_TEMPLATE("an empty sum is zero, an empty result is nothing", T, float, double) {
  Buffer<T> d({2, 3}, 5);
  Tensor a = d.tensor(), b = d.tensor();
  a.extent = {2, 0}, b.extent = {3, 0};
  kernels().gemm(stream, GemmForm::nt, d.tensor(), a, b, Write::overwrite);
  check_close("zero", d, std::vector<double>(6, 0.0), 0);
  d.fill(4);
  kernels().gemm(stream, GemmForm::nt, d.tensor(), a, b, Write::accumulate);
  check_close("kept", d, std::vector<double>(6, 4.0), 0);
  Tensor empty = d.tensor();
  empty.extent = {0, 3};
  a.extent = {0, 2}, b.extent = {3, 2};
  kernels().gemm(stream, GemmForm::nt, empty, a, b, Write::overwrite);
  CHECK(d.at(0, 0) == T(4));
}

TEST_CASE("shapes that do not fit and other dtypes are refused") {
  Buffer<float> a({4, 5}), b({6, 5}), d({4, 6});
  Buffer<double> wide({4, 6});
  CHECK_THROWS_AS(kernels().gemm(stream, GemmForm::nn, d.tensor(), a.tensor(), b.tensor(), Write::overwrite), Error);
  CHECK_THROWS_AS(kernels().gemm(stream, GemmForm::nt, wide.tensor(), a.tensor(), b.tensor(), Write::overwrite), Error);
  Buffer<std::int32_t> ia({4, 5}), ib({6, 5}), id({4, 6});
  CHECK_THROWS_AS(kernels().gemm(stream, GemmForm::nt, id.tensor(), ia.tensor(), ib.tensor(), Write::overwrite), Error);
}

TEST_CASE_TEMPLATE("our own product gives the same bits at any number of threads", T, double, Bf16) {
  Random random(7);
  for (const GemmForm form : forms) {
    Case<T, StatsOf<T>> c(random, form, 300, 390, 600, 1);
    const auto run = [&] {
      gemm_tiled(form, {300, 390, 600}, c.d.tensor(), c.a.tensor(), c.b.tensor(), Write::overwrite);
    };
    check_thread_invariance(c.d, run);
  }
}

TEST_CASE("fp32 gemm gives the same bits from run to run, whatever ran between") {
  Random random(8);
  for (const int threads : {1, 2}) {
    for (const GemmForm form : forms) {
      INFO("threads ", threads, " form ", static_cast<int>(form));
      // A long sum with few results is where a library would split k over threads.
      for (const std::int64_t k : {192, 2000}) {
        Case<float> c(random, form, 96, 80, k, 4), other(random, form, 50, 60, 70, 0);
        with_threads(threads, [&] {
          c.run(Write::overwrite);
          const auto first = c.d;
          for (int repeat = 0; repeat < 4; ++repeat) {
            other.run(Write::overwrite);
            auto again = c;  // other addresses
            again.run(Write::overwrite);
            CHECK(first.same_bits(again.d));
            again.d.fill(0);
            again.run(Write::accumulate);
            CHECK(first.same_bits(again.d));
          }
        });
      }
    }
  }
}
