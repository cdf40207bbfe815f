// SPDX-License-Identifier: Apache-2.0
/// What every kernel test shares: owned tensors with random or poisoned contents and guarded gaps, comparison with a
/// reference in fp64, bit comparison over thread counts, and the finite-difference check of gradients.
#pragma once

#include <doctest/doctest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/base/bf16.hpp"

namespace llmtrain::test {

/// A small generator of test inputs (splitmix64), unrelated to the kernels' own random numbers.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Uniform in [low, high).
  double uniform(double low, double high) { return low + (high - low) * static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// Nearly N(0, 1): the sum of 12 uniform numbers.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform(0, 1);
    return sum;
  }
  /// Uniform integer in [0, n).
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n)); }

 private:
  std::uint64_t state_;
};

/// Relative bound of a comparison with a reference in fp64, for results whose error does not grow with the size.
template <class T>
inline constexpr double tolerance = std::is_same_v<T, double>  ? 1e-13
                                    : std::is_same_v<T, float> ? 1e-5
                                                               : 0x1p-8;

/// The stats dtype of data of type T.
template <class T>
using StatsOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// A tensor that owns its storage. Elements between the rows hold a guard value that gaps_intact() checks.
template <class T>
class Buffer {
 public:
  /// Poisoned: NaN (floating types) or the lowest integer. `leading` 0 = dense.
  explicit Buffer(std::vector<std::int64_t> shape, std::int64_t leading = 0) : shape_(std::move(shape)) {
    const Tensor plain = Tensor::dense(nullptr, dtype_of<T>, shape_);
    rows_ = plain.rows();
    cols_ = plain.cols();
    leading_ = leading == 0 ? cols_ : leading;
    storage_.assign(static_cast<std::size_t>(rows_ * leading_), guard);
    fill(poison());
  }

  /// N(0, deviation^2) + mean.
  static Buffer random(Random& random, std::vector<std::int64_t> shape, std::int64_t leading = 0, double deviation = 1,
                       double mean = 0) {
    Buffer b(std::move(shape), leading);
    b.each([&](T& x) { x = static_cast<T>(mean + deviation * random.normal()); });
    return b;
  }
  /// Uniform integers in [low, low + count).
  static Buffer integers(Random& random, std::vector<std::int64_t> shape, std::int64_t low, std::int64_t count) {
    Buffer b(std::move(shape));
    b.each([&](T& x) { x = static_cast<T>(low + random.below(count)); });
    return b;
  }

  static T poison() {
    if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::quiet_NaN();
    if constexpr (sizeof(T) <= 2 && !std::is_integral_v<T>) return T(std::numeric_limits<float>::quiet_NaN());
    return std::numeric_limits<T>::lowest();
  }

  Tensor tensor() {
    Tensor t = Tensor::dense(storage_.data(), dtype_of<T>, shape_);
    t.leading = leading_;
    return t;
  }
  T& at(std::int64_t row, std::int64_t col = 0) { return storage_[static_cast<std::size_t>(row * leading_ + col)]; }
  const T& at(std::int64_t row, std::int64_t col = 0) const {
    return storage_[static_cast<std::size_t>(row * leading_ + col)];
  }
  /// Element `index` of the elements in row-major order, gaps not counted.
  T& flat(std::int64_t index) { return at(index / cols_, index % cols_); }
  const T& flat(std::int64_t index) const { return at(index / cols_, index % cols_); }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t numel() const { return rows_ * cols_; }

  void fill(T value) {
    each([&](T& x) { x = value; });
  }
  template <class F>
  void each(F&& f) {
    for (std::int64_t i = 0; i < numel(); ++i) f(flat(i));
  }
  std::vector<double> values() const {
    std::vector<double> v(static_cast<std::size_t>(numel()));
    for (std::int64_t i = 0; i < numel(); ++i) v[static_cast<std::size_t>(i)] = static_cast<double>(flat(i));
    return v;
  }
  bool gaps_intact() const {
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t c = cols_; c < leading_; ++c) {
        if (at(r, c) != guard) return false;
      }
    }
    return true;
  }
  bool same_bits(const Buffer& other) const {
    return storage_.size() == other.storage_.size() &&
           std::memcmp(storage_.data(), other.storage_.data(), storage_.size() * sizeof(T)) == 0;
  }

 private:
  inline static const T guard = static_cast<T>(-77);
  std::vector<std::int64_t> shape_;
  std::int64_t rows_ = 0, cols_ = 0, leading_ = 0;
  std::vector<T> storage_;
};

/// Checks |got - expected| <= bound * (|expected| + rms(expected)) for every element, and that no gap was written.
template <class T>
void check_close(const char* what, const Buffer<T>& got, const std::vector<double>& expected, double bound) {
  INFO(what);
  REQUIRE(got.numel() == static_cast<std::int64_t>(expected.size()));
  double squares = 0;
  for (const double e : expected) squares += e * e;
  const double rms = expected.empty() ? 0 : std::sqrt(squares / static_cast<double>(expected.size()));
  std::int64_t wrong = 0, first = -1;
  for (std::int64_t i = 0; i < got.numel(); ++i) {
    const double e = expected[static_cast<std::size_t>(i)];
    const double error = std::abs(static_cast<double>(got.flat(i)) - e);
    if (error <= bound * (std::abs(e) + rms)) continue;  // false for NaN
    if (wrong++ == 0) first = i;
  }
  if (wrong > 0) {
    INFO("first of ", wrong, " wrong elements: ", first, " is ", static_cast<double>(got.flat(first)), ", expected ",
         expected[static_cast<std::size_t>(first)]);
    CHECK(wrong == 0);
  }
  CHECK(got.gaps_intact());
}

/// Runs `body` with `threads` OpenMP threads.
template <class F>
void with_threads(int threads, F&& body) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  body();
  omp_set_num_threads(before);
}

/// `run` must compute all of `result` (a Buffer) anew: 1, 2 and 3 threads must give the same bits.
template <class Result, class F>
void check_thread_invariance(const Result& result, F&& run) {
  with_threads(1, run);
  const Result one = result;
  for (const int threads : {2, 3}) {
    with_threads(threads, run);
    INFO("threads ", threads);
    CHECK(one.same_bits(result));
  }
}

/// One input of a differentiated function and the gradient that the kernel gives for it.
struct Gradient {
  Buffer<double>* input;
  std::vector<double> value;
};

/// Whether a function has a third derivative along a line.
enum class Degree { any, at_most_2 };

/// Compares directional derivatives of `f` (which reads the inputs anew at each call) along 8 random directions, by
/// fourth-order differences, with the gradients: |difference| <= bound * ||gradient||. Second-order differences must
/// approach them with the square of the step, over three steps; of a polynomial of degree 2 at most they are exact.
inline void check_gradient(Random& random, const std::vector<Gradient>& gradients, const std::function<double()>& f,
                           Degree degree = Degree::any, double bound = 1e-6, double step = 1e-3) {
  for (int direction = 0; direction < 8; ++direction) {
    std::vector<std::vector<double>> saved, v;
    double expected = 0, squares = 0, length = 0;
    for (const Gradient& g : gradients) {
      REQUIRE(static_cast<std::int64_t>(g.value.size()) == g.input->numel());
      saved.push_back(g.input->values());
      v.emplace_back();
      for (const double x : g.value) {
        v.back().push_back(random.normal());
        expected += x * v.back().back();
        squares += x * x;
        length += v.back().back() * v.back().back();
      }
    }
    const auto at = [&](double h) {
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        for (std::size_t k = 0; k < v[i].size(); ++k) {
          gradients[i].input->flat(static_cast<std::int64_t>(k)) = saved[i][k] + h * v[i][k];
        }
      }
      return f();
    };
    const auto central = [&](double h) { return (at(h) - at(-h)) / (2 * h); };
    const double steps[] = {4 * step, 2 * step, step};
    double differences[3] = {};
    for (int i = 0; i < 3; ++i) differences[i] = central(steps[i]);
    const double got = (4 * differences[2] - differences[1]) / 3, norm = std::sqrt(squares);
    at(0);
    INFO("direction ", direction, ": differences give ", got, ", the gradient ", expected);
    CHECK(length > 0);
    CHECK(std::abs(got - expected) <= bound * norm);
    for (int i = 0; i < 3; ++i) {
      const double error = std::abs(differences[i] - expected);
      if (degree == Degree::at_most_2) CHECK(error <= 1e-10 * norm);
      if (degree == Degree::any && i > 0) {
        CHECK(std::log2(std::abs(differences[i - 1] - expected) / error) == doctest::Approx(2).epsilon(0.05));
      }
    }
  }
}

/// Random weights of a scalar loss sum(w * out), and that loss.
inline double weighted_sum(const Buffer<double>& w, const Buffer<double>& out) {
  double sum = 0;
  for (std::int64_t i = 0; i < out.numel(); ++i) sum += w.flat(i) * out.flat(i);
  return sum;
}

/// CPU operations need no device behind their stream.
inline constexpr Stream stream{nullptr, 0};

}  // namespace llmtrain::test
