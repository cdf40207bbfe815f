// SPDX-License-Identifier: Apache-2.0
/// rms_norm forward and backward: with and without the residual, strided, in place, against plain loops and finite
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

/// y and rstd of plain loops in fp64.
template <class T>
void reference(const std::vector<double>& r, const Buffer<T>& w, std::vector<double>& y, std::vector<double>& rstd) {
  const std::int64_t cols = w.numel(), rows = static_cast<std::int64_t>(r.size()) / cols;
  for (std::int64_t t = 0; t < rows; ++t) {
    const double* const row = r.data() + t * cols;
    double squares = 0;
    for (std::int64_t c = 0; c < cols; ++c) squares += row[c] * row[c];
    rstd.push_back(1 / std::sqrt(squares / static_cast<double>(cols) + eps));
    for (std::int64_t c = 0; c < cols; ++c) y.push_back(row[c] * rstd.back() * static_cast<double>(w.flat(c)));
  }
}

template <class T>
struct BackwardCase {
  BackwardCase(Random& random, Shape s, bool through)
      : d_y(Buffer<T>::random(random, {s.rows, s.cols}, s.cols + 3)),
        x(Buffer<T>::random(random, {s.rows, s.cols}, s.cols + 1)),
        w(Buffer<T>::random(random, {s.cols}, 0, 0.5, 1)),
        d_residual(Buffer<T>::random(random, {s.rows, s.cols}, s.cols + 2)),
        rstd({s.rows}),
        d_x({s.rows, s.cols}, s.cols + 2),
        with_residual(through),
        workspace(static_cast<std::size_t>(
            norm_backward_workspace(device_kind(), s.rows, s.cols, dtype_of<StatsOf<T>>) / 8 + 1)) {
    Buffer<T> y({s.rows, s.cols});
    kernels().rms_norm_forward(stream, y.tensor(), {}, rstd.tensor(), x.tensor(), {}, w.tensor(), eps);
  }

  void run(Tensor to, Buffer<StatsOf<T>>& d_w, Tensor through, Write write) {
    std::fill(workspace.begin(), workspace.end(), std::numeric_limits<double>::quiet_NaN());
    const Tensor bytes =
        Tensor::dense(workspace.data(), DType::uint8, {static_cast<std::int64_t>(workspace.size()) * 8});
    kernels().rms_norm_backward(stream, to, d_w.tensor(), with_residual ? through : Tensor{}, d_y.tensor(), x.tensor(),
                                rstd.tensor(), w.tensor(), write, bytes);
  }

  Buffer<T> d_y, x, w, d_residual;
  Buffer<StatsOf<T>> rstd;
  Buffer<T> d_x;
  bool with_residual;
  std::vector<double> workspace;
};

}  // namespace

TEST_CASE_TEMPLATE("rms_norm_forward normalises rows", T, Bf16, float, double) {
  Random random(1);
  for (const auto& [rows, cols] : shapes) {
    auto x = Buffer<T>::random(random, {rows, cols}, cols + 2, 2, 0.3);
    auto w = Buffer<T>::random(random, {cols}, 0, 0.5, 1);
    Buffer<T> y({rows, cols}, cols + 1);
    Buffer<StatsOf<T>> rstd({rows});
    std::vector<double> expected, expected_rstd;
    reference(x.values(), w, expected, expected_rstd);
    check_thread_invariance(
        y, [&] { kernels().rms_norm_forward(stream, y.tensor(), {}, rstd.tensor(), x.tensor(), {}, w.tensor(), eps); });
    check_close("y", y, expected, tolerance<T>);
    check_close("rstd", rstd, expected_rstd, tolerance<T>);
  }
}

TEST_CASE_TEMPLATE("rms_norm_forward adds and keeps the residual, also in place of x", T, Bf16, float, double) {
  Random random(2);
  for (const auto& [rows, cols] : shapes) {
    auto x = Buffer<T>::random(random, {rows, cols}, cols + 2), delta = Buffer<T>::random(random, {rows, cols});
    auto w = Buffer<T>::random(random, {cols}, 0, 0.5, 1);
    Buffer<T> y({rows, cols}), residual({rows, cols}, cols + 2), y2({rows, cols});
    Buffer<StatsOf<T>> rstd({rows});
    std::vector<double> sum = x.values(), expected, expected_rstd;
    for (std::int64_t i = 0; i < x.numel(); ++i) sum[static_cast<std::size_t>(i)] += static_cast<double>(delta.flat(i));
    kernels().rms_norm_forward(stream, y.tensor(), residual.tensor(), rstd.tensor(), x.tensor(), delta.tensor(),
                               w.tensor(), eps);
    check_close("residual", residual, sum, tolerance<T>);
    reference(residual.values(), w, expected, expected_rstd);  // of the sum as stored
    check_close("y", y, expected, tolerance<T>);
    check_close("rstd", rstd, expected_rstd, tolerance<T>);
    kernels().rms_norm_forward(stream, y2.tensor(), x.tensor(), rstd.tensor(), x.tensor(), delta.tensor(), w.tensor(),
                               eps);
    CHECK(x.same_bits(residual));
    CHECK(y2.same_bits(y));
  }
}

TEST_CASE_TEMPLATE("rms_norm_backward agrees with plain loops, in place and for any number of threads", T, Bf16, float,
                   double) {
  Random random(3);
  for (const Shape& s : shapes) {
    for (const bool through : {false, true}) {
      BackwardCase<T> c(random, s, through);
      const auto n = static_cast<double>(s.cols);
      const auto before = Buffer<StatsOf<T>>::random(random, {s.cols});
      std::vector<double> d_x, d_w(static_cast<std::size_t>(s.cols), 0.0);
      for (std::int64_t t = 0; t < s.rows; ++t) {
        const double r = c.rstd.at(t);
        double dot = 0;
        for (std::int64_t k = 0; k < s.cols; ++k) {
          dot += static_cast<double>(c.w.flat(k)) * static_cast<double>(c.d_y.at(t, k)) *
                 static_cast<double>(c.x.at(t, k));
        }
        for (std::int64_t k = 0; k < s.cols; ++k) {
          const double g = c.d_y.at(t, k), x = c.x.at(t, k);
          d_w[static_cast<std::size_t>(k)] += g * x * r;
          d_x.push_back((through ? static_cast<double>(c.d_residual.at(t, k)) : 0.0) +
                        r * (static_cast<double>(c.w.flat(k)) * g - x * r * r * dot / n));
        }
      }
      Buffer<StatsOf<T>> d_weight({s.cols});
      check_thread_invariance(d_weight,
                              [&] { c.run(c.d_x.tensor(), d_weight, c.d_residual.tensor(), Write::overwrite); });
      check_close("d_x", c.d_x, d_x, tolerance<T>);
      check_close("d_weight", d_weight, d_w, tolerance<T>);
      d_weight = before;
      c.run(c.d_residual.tensor(), d_weight, c.d_residual.tensor(), Write::accumulate);  // in place
      for (std::int64_t k = 0; k < s.cols; ++k) d_w[static_cast<std::size_t>(k)] += static_cast<double>(before.at(k));
      check_close("accumulated d_weight", d_weight, d_w, tolerance<T>);
      CHECK(c.d_residual.same_bits(c.d_x));
    }
  }
}

TEST_CASE("rms_norm_backward is the gradient") {
  Random random(4);
  const Shape s{6, 10};
  BackwardCase<double> c(random, s, true);
  Buffer<double> d_weight({s.cols}), y({s.rows, s.cols}), rstd({s.rows});
  c.run(c.d_x.tensor(), d_weight, c.d_residual.tensor(), Write::overwrite);
  check_gradient(random, {{&c.x, c.d_x.values()}, {&c.w, d_weight.values()}}, [&] {
    kernels().rms_norm_forward(stream, y.tensor(), {}, rstd.tensor(), c.x.tensor(), {}, c.w.tensor(), eps);
    return weighted_sum(c.d_y, y) + weighted_sum(c.d_residual, c.x);
  });
}

TEST_CASE_TEMPLATE("rms_norm of every head is rms_norm of heads as rows", T, Bf16, float, double) {
  Random random(6);
  const std::int64_t heads = 3;
  std::int64_t tokens = 37, width = 18, others = 11, gap = 2;
  SUBCASE("odd") {}
  SUBCASE("of models") { tokens = 2300, width = 128, others = 64, gap = 8; }
  const std::int64_t rows = tokens * heads;
  // The first heads of a packed tensor against the same numbers as a dense matrix.
  auto packed = Buffer<T>::random(random, {tokens, heads, width}, heads * width + others);
  auto d_packed = Buffer<T>::random(random, {tokens, heads, width}, heads * width + others);
  auto w = Buffer<T>::random(random, {width}, 0, 0.5, 1);
  Buffer<T> x({rows, width}), d_y({rows, width}), y({rows, width}), d_x({rows, width}),
      y_packed({tokens, heads, width}, heads * width + gap);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.flat(i) = packed.flat(i);
    d_y.flat(i) = d_packed.flat(i);
  }
  Buffer<StatsOf<T>> rstd({rows}), rstd_packed({rows}), d_w({width}), d_w_packed({width});
  std::vector<double> space(
      static_cast<std::size_t>(norm_backward_workspace(device_kind(), rows, width, dtype_of<StatsOf<T>>) / 8 + 1));
  const Tensor workspace = Tensor::dense(space.data(), DType::uint8, {static_cast<std::int64_t>(space.size()) * 8});
  kernels().rms_norm_forward(stream, y.tensor(), {}, rstd.tensor(), x.tensor(), {}, w.tensor(), eps);
  kernels().rms_norm_forward(stream, y_packed.tensor(), {}, rstd_packed.tensor(), packed.tensor(), {}, w.tensor(), eps);
  check_close("y", y_packed, y.values(), 0);
  CHECK(rstd_packed.same_bits(rstd));
  kernels().rms_norm_backward(stream, d_x.tensor(), d_w.tensor(), {}, d_y.tensor(), x.tensor(), rstd.tensor(),
                              w.tensor(), Write::overwrite, workspace);
  kernels().rms_norm_backward(stream, d_packed.tensor(), d_w_packed.tensor(), {}, d_packed.tensor(), packed.tensor(),
                              rstd.tensor(), w.tensor(), Write::overwrite, workspace);  // in place
  check_close("d_x", d_packed, d_x.values(), 0);
  CHECK(d_w_packed.same_bits(d_w));
  CHECK_THROWS_AS(kernels().rms_norm_forward(stream, y_packed.tensor(), {}, rstd_packed.tensor(), packed.tensor(), {},
                                             Buffer<T>({width - 1}).tensor(), eps),
                  Error);
}

TEST_CASE("rms_norm_backward refuses too small a workspace") {
  Random random(5);
  BackwardCase<float> c(random, {5, 8}, true);
  c.workspace.resize(1);
  Buffer<float> d_weight({8});
  CHECK_THROWS_AS(c.run(c.d_x.tensor(), d_weight, c.d_residual.tensor(), Write::overwrite), Error);
}
