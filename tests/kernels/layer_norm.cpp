// SPDX-License-Identifier: Apache-2.0
/// layer_norm forward and backward: with and without the residual, strided, in place, against plain loops and finite
/// differences.
#include "kernels.hpp"
#include "llmtrain/backend/workspace.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

struct Shape {
  std::int64_t rows, cols;
};
const std::vector<Shape> shapes = {{1, 1}, {3, 7}, {150, 130}, {65, 515}};
constexpr double eps = 1e-3;

/// Results of plain loops in fp64.
struct Reference {
  std::vector<double> y, mean, rstd;

  template <class T>
  Reference(const std::vector<double>& r, const Buffer<T>& w, const Buffer<T>& b) {
    const std::int64_t cols = w.numel(), rows = static_cast<std::int64_t>(r.size()) / cols;
    for (std::int64_t t = 0; t < rows; ++t) {
      const double* const row = r.data() + t * cols;
      double sum = 0, squares = 0;
      for (std::int64_t c = 0; c < cols; ++c) sum += row[c];
      mean.push_back(sum / static_cast<double>(cols));
      for (std::int64_t c = 0; c < cols; ++c) squares += (row[c] - mean.back()) * (row[c] - mean.back());
      rstd.push_back(1 / std::sqrt(squares / static_cast<double>(cols) + eps));
      for (std::int64_t c = 0; c < cols; ++c) {
        y.push_back((row[c] - mean.back()) * rstd.back() * static_cast<double>(w.flat(c)) +
                    static_cast<double>(b.flat(c)));
      }
    }
  }
};

template <class T>
struct Case {
  Case(Random& random, Shape s)
      : d_y(Buffer<T>::random(random, {s.rows, s.cols}, s.cols + 3)),
        x(Buffer<T>::random(random, {s.rows, s.cols}, s.cols + 1, 1, 0.5)),
        w(Buffer<T>::random(random, {s.cols}, 0, 0.5, 1)),
        b(Buffer<T>::random(random, {s.cols})),
        d_residual(Buffer<T>::random(random, {s.rows, s.cols}, s.cols + 2)),
        mean({s.rows}),
        rstd({s.rows}),
        d_x({s.rows, s.cols}, s.cols + 2),
        workspace(static_cast<std::size_t>(
            layer_norm_backward_workspace(device_kind(), s.rows, s.cols, dtype_of<StatsOf<T>>) / 8 + 1)) {
    Buffer<T> y({s.rows, s.cols});
    kernels().layer_norm_forward(stream, y.tensor(), {}, mean.tensor(), rstd.tensor(), x.tensor(), {}, w.tensor(),
                                 b.tensor(), eps);
  }

  void run(Tensor to, Buffer<StatsOf<T>>& d_w, Buffer<StatsOf<T>>& d_b, Tensor through, Write write) {
    std::fill(workspace.begin(), workspace.end(), std::numeric_limits<double>::quiet_NaN());
    const Tensor bytes =
        Tensor::dense(workspace.data(), DType::uint8, {static_cast<std::int64_t>(workspace.size()) * 8});
    kernels().layer_norm_backward(stream, to, d_w.tensor(), d_b.tensor(), through, d_y.tensor(), x.tensor(),
                                  mean.tensor(), rstd.tensor(), w.tensor(), write, bytes);
  }

  Buffer<T> d_y, x, w, b, d_residual;
  Buffer<StatsOf<T>> mean, rstd;
  Buffer<T> d_x;
  std::vector<double> workspace;
};

/// d_x, d_w and d_b of a case by plain loops.
template <class T>
void reference_backward(const Case<T>& c, bool through, std::vector<double>& d_x, std::vector<double>& d_w,
                        std::vector<double>& d_b) {
  const std::int64_t cols = c.w.numel();
  const auto n = static_cast<double>(cols);
  d_w.assign(static_cast<std::size_t>(cols), 0.0);
  d_b = d_w;
  for (std::int64_t t = 0; t < c.x.rows(); ++t) {
    const double m = c.mean.at(t), r = c.rstd.at(t);
    const auto normed = [&](std::int64_t k) { return (static_cast<double>(c.x.at(t, k)) - m) * r; };
    const auto g = [&](std::int64_t k) {
      return static_cast<double>(c.w.flat(k)) * static_cast<double>(c.d_y.at(t, k));
    };
    double sum = 0, dot = 0;
    for (std::int64_t k = 0; k < cols; ++k) {
      sum += g(k);
      dot += g(k) * normed(k);
    }
    for (std::int64_t k = 0; k < cols; ++k) {
      d_w[static_cast<std::size_t>(k)] += static_cast<double>(c.d_y.at(t, k)) * normed(k);
      d_b[static_cast<std::size_t>(k)] += static_cast<double>(c.d_y.at(t, k));
      d_x.push_back((through ? static_cast<double>(c.d_residual.at(t, k)) : 0.0) +
                    r * (g(k) - sum / n - normed(k) * dot / n));
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("layer_norm_forward normalises rows, adds and keeps the residual, also in place", T, Bf16, float,
                   double) {
  Random random(1);
  for (const auto& [rows, cols] : shapes) {
    auto x = Buffer<T>::random(random, {rows, cols}, cols + 2, 2, 0.3), delta = Buffer<T>::random(random, {rows, cols});
    auto w = Buffer<T>::random(random, {cols}, 0, 0.5, 1), b = Buffer<T>::random(random, {cols});
    Buffer<T> y({rows, cols}, cols + 1), residual({rows, cols}, cols + 2), y2({rows, cols}, cols + 1);
    Buffer<StatsOf<T>> mean({rows}), rstd({rows});
    const Reference plain(x.values(), w, b);
    check_thread_invariance(y, [&] {
      kernels().layer_norm_forward(stream, y.tensor(), {}, mean.tensor(), rstd.tensor(), x.tensor(), {}, w.tensor(),
                                   b.tensor(), eps);
    });
    check_close("y", y, plain.y, tolerance<T>);
    check_close("mean", mean, plain.mean, tolerance<T>);
    check_close("rstd", rstd, plain.rstd, tolerance<T>);
    std::vector<double> sum = x.values();
    for (std::int64_t i = 0; i < x.numel(); ++i) sum[static_cast<std::size_t>(i)] += static_cast<double>(delta.flat(i));
    kernels().layer_norm_forward(stream, y.tensor(), residual.tensor(), mean.tensor(), rstd.tensor(), x.tensor(),
                                 delta.tensor(), w.tensor(), b.tensor(), eps);
    check_close("residual", residual, sum, tolerance<T>);
    check_close("y of the sum", y, Reference(residual.values(), w, b).y, tolerance<T>);  // as stored
    kernels().layer_norm_forward(stream, y2.tensor(), x.tensor(), mean.tensor(), rstd.tensor(), x.tensor(),
                                 delta.tensor(), w.tensor(), b.tensor(), eps);
    CHECK(x.same_bits(residual));
    CHECK(y2.same_bits(y));
  }
}

TEST_CASE_TEMPLATE("layer_norm keeps its digits far from zero", T, float, double) {
  const std::int64_t cols = 64;
  Buffer<T> x({1, cols}), w({cols}), b({cols}), y({1, cols});
  Buffer<StatsOf<T>> mean({1}), rstd({1});
  for (std::int64_t c = 0; c < cols; ++c) x.at(0, c) = static_cast<T>(1e5 + (c % 2 == 0 ? 1 : -1));
  w.fill(1);
  b.fill(0);
  kernels().layer_norm_forward(stream, y.tensor(), {}, mean.tensor(), rstd.tensor(), x.tensor(), {}, w.tensor(),
                               b.tensor(), eps);
  for (std::int64_t c = 0; c < cols; ++c) {
    CHECK(static_cast<double>(y.at(0, c)) == doctest::Approx(c % 2 == 0 ? 1 : -1).epsilon(1e-3));
  }
}

TEST_CASE_TEMPLATE("layer_norm_backward agrees with plain loops, in place and for any number of threads", T, Bf16,
                   float, double) {
  Random random(3);
  for (const Shape& s : shapes) {
    for (const bool through : {false, true}) {
      Case<T> c(random, s);
      const auto before = Buffer<StatsOf<T>>::random(random, {s.cols});
      std::vector<double> d_x, d_w, d_b;
      reference_backward(c, through, d_x, d_w, d_b);
      const Tensor residual = through ? c.d_residual.tensor() : Tensor{};
      Buffer<StatsOf<T>> weight({s.cols}), bias({s.cols});
      check_thread_invariance(weight, [&] { c.run(c.d_x.tensor(), weight, bias, residual, Write::overwrite); });
      check_thread_invariance(bias, [&] { c.run(c.d_x.tensor(), weight, bias, residual, Write::overwrite); });
      if (s.cols == 1 && !through) {  // the norm of one number does not depend on it: all terms cancel
        CHECK(std::abs(static_cast<double>(c.d_x.at(0, 0))) < tolerance<T>);
      } else {
        check_close("d_x", c.d_x, d_x, 4 * tolerance<T>);
      }
      check_close("d_weight", weight, d_w, tolerance<T>);
      check_close("d_bias", bias, d_b, tolerance<T>);
      weight = bias = before;
      if (through) {
        c.run(c.d_residual.tensor(), weight, bias, c.d_residual.tensor(), Write::accumulate);  // in place
        CHECK(c.d_residual.same_bits(c.d_x));
      } else {
        c.run(c.d_x.tensor(), weight, bias, {}, Write::accumulate);
      }
      for (std::size_t k = 0; k < d_w.size(); ++k) {
        d_w[k] += static_cast<double>(before.at(static_cast<std::int64_t>(k)));
        d_b[k] += static_cast<double>(before.at(static_cast<std::int64_t>(k)));
      }
      check_close("accumulated d_weight", weight, d_w, tolerance<T>);
      check_close("accumulated d_bias", bias, d_b, tolerance<T>);
    }
  }
}

TEST_CASE("layer_norm_backward is the gradient") {
  Random random(4);
  const Shape s{6, 10};
  Case<double> c(random, s);
  Buffer<double> d_weight({s.cols}), d_bias({s.cols}), y({s.rows, s.cols}), mean({s.rows}), rstd({s.rows});
  c.run(c.d_x.tensor(), d_weight, d_bias, c.d_residual.tensor(), Write::overwrite);
  check_gradient(random, {{&c.x, c.d_x.values()}, {&c.w, d_weight.values()}, {&c.b, d_bias.values()}}, [&] {
    kernels().layer_norm_forward(stream, y.tensor(), {}, mean.tensor(), rstd.tensor(), c.x.tensor(), {}, c.w.tensor(),
                                 c.b.tensor(), eps);
    return weighted_sum(c.d_y, y) + weighted_sum(c.d_residual, c.x);
  });
}

TEST_CASE("layer_norm refuses what does not fit") {
  Random random(5);
  Case<float> c(random, {5, 8});
  Buffer<float> d_weight({8}), d_bias({8}), narrow({7}), y({5, 8});
  CHECK_THROWS_WITH(kernels().layer_norm_forward(stream, y.tensor(), {}, c.mean.tensor(), c.rstd.tensor(), c.x.tensor(),
                                                 {}, c.w.tensor(), narrow.tensor(), eps),
                    doctest::Contains("weight and bias must be"));
  CHECK_THROWS_AS(kernels().layer_norm_forward(stream, y.tensor(), {}, c.mean.tensor(), c.rstd.tensor(), c.x.tensor(),
                                               c.x.tensor(), c.w.tensor(), c.b.tensor(), eps),
                  Error);  // delta without residual
  c.workspace.resize(1);
  CHECK_THROWS_WITH(c.run(c.d_x.tensor(), d_weight, d_bias, {}, Write::overwrite), doctest::Contains("workspace"));
}
