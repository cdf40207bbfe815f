// SPDX-License-Identifier: Apache-2.0
/// Softmax cross-entropy over the vocabulary rows of one rank, on the CPU.
#include <cmath>
#include <limits>

#include "common/math.hpp"
#include "cpu/cpu_kernels.hpp"
#include "cpu/loops.hpp"

namespace llmtrain {

namespace {

template <class S>
struct SoftmaxSums {
  S maximum, sum;
};

/// Maximum and sum of exp(x - maximum) in one pass over memory: blocks that stay in the first cache are read twice, and
/// the sum is rescaled when a block raises the maximum.
template <class T>
SoftmaxSums<StatsType<T>> softmax_sums(const T* x, std::int64_t n) {
  using S = StatsType<T>;
  constexpr std::int64_t block = 1024, lanes = 16;
  SoftmaxSums<S> result{std::numeric_limits<S>::lowest(), S{0}};  // finite, so that -infinity adds 0
  for (std::int64_t begin = 0; begin < n; begin += block) {
    const std::int64_t count = std::min(block, n - begin);
    const T* const b = x + begin;
    S highest[lanes];
    for (S& h : highest) h = result.maximum;
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
#pragma omp simd
      for (std::int64_t j = 0; j < lanes; ++j) highest[j] = load(b[i + j]) > highest[j] ? load(b[i + j]) : highest[j];
    }
    for (; i < count; ++i) highest[0] = load(b[i]) > highest[0] ? load(b[i]) : highest[0];
    const S maximum = *std::max_element(highest, highest + lanes);
    if (begin > 0) result.sum *= fast_exp(result.maximum - maximum);
    result.maximum = maximum;
    result.sum += lane_sum<S>(count, [&](std::int64_t c) { return fast_exp(load(b[c]) - maximum); });
  }
  if (result.sum == S{0}) result.maximum = -std::numeric_limits<S>::infinity();  // there was nothing above it
  return result;
}

/// The tokens' logits and what is made of them, token by token.
template <class T>
class TokenRows {
 public:
  TokenRows(const Tensor& logits, const Tensor& stats, const Tensor& targets, VocabRange vocab)
      : logits_(logits), stats_(stats), targets_(targets.ptr<std::int32_t>()), vocab_(vocab) {}

  void write_stats(std::int64_t t) const {
    const SoftmaxSums<S> sums = softmax_sums(logits_.row(t), vocab_.valid);
    const std::int64_t target = column(t);
    stats_.row(0)[t] = sums.maximum;
    stats_.row(1)[t] = sums.sum;
    stats_.row(2)[t] = target >= 0 ? load(logits_.row(t)[target]) : S{0};
  }

  void write_gradient(std::int64_t t, float weight) const {
    T* const row = logits_.row(t);
    const S maximum = stats_.row(0)[t], w = static_cast<S>(weight), factor = w / stats_.row(1)[t];
    const std::int64_t target = column(t);
    const S logit = target >= 0 ? load(row[target]) : S{0};
#pragma omp simd
    for (std::int64_t c = 0; c < vocab_.valid; ++c) store(row[c], fast_exp(load(row[c]) - maximum) * factor);
    if (target >= 0) store(row[target], std::fma(fast_exp(logit - maximum), factor, -w));  // rounded once
    for (std::int64_t c = vocab_.valid; c < logits_.cols; ++c) store(row[c], S{0});
  }

  template <class Body>
  void each(Body&& body) const {
#pragma omp parallel for schedule(static) if (logits_.rows * logits_.cols >= parallel_threshold)
    for (std::int64_t t = 0; t < logits_.rows; ++t) body(t);
  }

 private:
  using S = StatsType<T>;

  /// Of the target; -1 where it is not one of the row's true columns.
  std::int64_t column(std::int64_t t) const {
    const std::int64_t local = targets_[t] - vocab_.first;
    return local >= 0 && local < vocab_.valid ? local : -1;
  }

  Matrix<T> logits_;
  Matrix<S> stats_;
  const std::int32_t* targets_;
  VocabRange vocab_;
};

}  // namespace

void CpuKernels::do_cross_entropy_stats(Stream, Tensor stats, Tensor logits, Tensor targets, VocabRange vocab) {
  dispatch("cross_entropy_stats", logits.dtype, [&]<class T>(T) {
    const TokenRows<T> rows(logits, stats, targets, vocab);
    rows.each([&](std::int64_t t) { rows.write_stats(t); });
  });
}

void CpuKernels::do_cross_entropy_merge(Stream, Tensor stats, Tensor parts) {
  dispatch_stats("cross_entropy_merge", stats.dtype, [&]<class S>(S) {
    const Matrix<S> out(stats);
    const std::int64_t tokens = out.cols;
    const auto at = [&, all = parts.ptr<S>()](std::int64_t rank, std::int64_t row, std::int64_t t) {
      return all[(rank * 3 + row) * tokens + t];
    };
#pragma omp parallel for schedule(static) if (parts.numel() >= parallel_threshold)
    for (std::int64_t t = 0; t < tokens; ++t) {
      S maximum = at(0, 0, t), sum = 0, target = 0;
      for (std::int64_t r = 1; r < parts.rows(); ++r) maximum = std::max(maximum, at(r, 0, t));
      for (std::int64_t r = 0; r < parts.rows(); ++r) {
        sum += at(r, 1, t) * std::exp(at(r, 0, t) - maximum);  // a rank without true rows: 0 exp(-infinity)
        target += at(r, 2, t);
      }
      out.row(0)[t] = maximum;
      out.row(1)[t] = sum;
      out.row(2)[t] = target;
    }
  });
}

void CpuKernels::do_cross_entropy_loss(Stream, Tensor totals, Tensor stats, Tensor weights) {
  dispatch_stats("cross_entropy_loss", stats.dtype, [&]<class S>(S) {
    const Matrix<S> x(stats);
    const S *const maximum = x.row(0), *const sum = x.row(1), *const target = x.row(2);
    const float* const weight = weights.ptr<float>();
    double loss = 0, count = 0;
    for (std::int64_t t = 0; t < x.cols; ++t) {
      const double log_sum = std::log(static_cast<double>(sum[t])) + static_cast<double>(maximum[t]);
      loss = std::fma(static_cast<double>(weight[t]), log_sum - static_cast<double>(target[t]), loss);
      count += static_cast<double>(weight[t]);
    }
    double* const out = totals.ptr<double>();
    out[0] += loss;
    out[1] += count;
  });
}

void CpuKernels::do_cross_entropy_gradient(Stream, Tensor logits, Tensor stats, Tensor targets, Tensor weights,
                                           VocabRange vocab) {
  dispatch("cross_entropy_gradient", logits.dtype, [&]<class T>(T) {
    const TokenRows<T> rows(logits, stats, targets, vocab);
    rows.each([&, weight = weights.ptr<float>()](std::int64_t t) { rows.write_gradient(t, weight[t]); });
  });
}

void CpuKernels::do_cross_entropy_with_gradient(Stream, Tensor stats, Tensor logits, Tensor targets, Tensor weights,
                                                VocabRange vocab) {
  dispatch("cross_entropy_with_gradient", logits.dtype, [&]<class T>(T) {
    const TokenRows<T> rows(logits, stats, targets, vocab);
    rows.each([&, weight = weights.ptr<float>()](std::int64_t t) {  // a row that caches still hold
      rows.write_stats(t);
      rows.write_gradient(t, weight[t]);
    });
  });
}

}  // namespace llmtrain
