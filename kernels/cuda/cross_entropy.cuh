// SPDX-License-Identifier: Apache-2.0
/// What the kernels of the softmax cross-entropy share: the sums over a token's row of logits and the row's gradient.
#pragma once

#include <cmath>
#include <limits>

#include "common/math.hpp"
#include "cuda/loops.cuh"

namespace llmtrain {

inline constexpr int row_threads = 512;  ///< of a block that works on one token's logits
inline constexpr int row_warps = row_threads / warp;

/// Sum of exp(x - maximum), with the maximum, from a finite one on, so that -infinity adds 0. NaN anywhere leaves NaN in
/// the sum.
template <class S>
struct alignas(2 * sizeof(S)) SoftmaxSums {
  S maximum = std::numeric_limits<S>::lowest();
  S sum = 0;

  __device__ __forceinline__ void add(const SoftmaxSums& other) {
    const S top = std::fmax(maximum, other.maximum);
    sum = sum * fast_exp(maximum - top) + other.sum * fast_exp(other.maximum - top);
    maximum = top;
  }

  template <int width>
  __device__ __forceinline__ void add(const Values<S, width>& x) {
    S top = maximum;
#pragma unroll
    for (int i = 0; i < width; ++i) top = std::fmax(top, x.at[i]);
    if (top > maximum) {
      sum *= fast_exp(maximum - top);
      maximum = top;
    }
#pragma unroll
    for (int i = 0; i < width; ++i) sum += fast_exp(x.at[i] - maximum);
  }

  /// The sums of all lanes, the same bits in each.
  __device__ __forceinline__ void add_lanes() {
#pragma unroll
    for (int offset = warp / 2; offset > 0; offset /= 2) {
      add({__shfl_xor_sync(all_lanes, maximum, offset), __shfl_xor_sync(all_lanes, sum, offset)});
    }
    maximum = __shfl_sync(all_lanes, maximum, 0);
    sum = __shfl_sync(all_lanes, sum, 0);
  }

  /// As it is stored: -infinity where there was nothing above it.
  __device__ __forceinline__ S highest() const { return sum == S{0} ? -std::numeric_limits<S>::infinity() : maximum; }
};

/// Column of a target in a row, -1 where it is not one of the row's true columns.
__device__ __forceinline__ int column_of(std::int32_t target, const VocabRange& vocab) {
  const std::int64_t local = target - vocab.first;
  return local >= 0 && local < vocab.valid ? static_cast<int>(local) : -1;
}

template <class T>
struct GradientCall {
  Matrix<T> logits;
  Matrix<StatsType<T>> stats;
  const std::int32_t* targets;
  const float* weights;
  VocabRange vocab;
  std::int64_t cols;
};

template <class T>
GradientCall<T> gradient_call(const Tensor& logits, const Tensor& stats, const Tensor& targets, const Tensor& weights,
                              VocabRange vocab) {
  return {Matrix<T>(logits), Matrix<StatsType<T>>(stats), targets.ptr<std::int32_t>(), weights.ptr<float>(), vocab,
          logits.cols()};
}

/// From the logits of a row to their gradient.
template <class S>
class RowGradient {
 public:
  template <class T>
  __device__ __forceinline__ RowGradient(const GradientCall<T>& call, std::int64_t t, S maximum, S sum)
      : maximum_(maximum),
        weight_(static_cast<S>(call.weights[t])),
        factor_(weight_ / sum),
        target_(column_of(call.targets[t], call.vocab)),
        valid_(static_cast<int>(call.vocab.valid)) {}

  /// Replaces the logits x from column c on.
  template <int width>
  __device__ __forceinline__ void apply(Values<S, width>& x, int c) const {
#pragma unroll
    for (int i = 0; i < width; ++i) x.at[i] = fast_exp(x.at[i] - maximum_);
    const bool has_target = target_ >= c && target_ < c + width;
    if (!has_target && c + width <= valid_) {
#pragma unroll
      for (int i = 0; i < width; ++i) x.at[i] *= factor_;
    } else {
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const S g = c + i == target_ ? std::fma(x.at[i], factor_, -weight_) : x.at[i] * factor_;  // rounded once
        x.at[i] = c + i < valid_ ? g : S{0};
      }
    }
  }

 private:
  S maximum_, weight_, factor_;
  int target_, valid_;
};

}  // namespace llmtrain
