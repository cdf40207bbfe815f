// SPDX-License-Identifier: Apache-2.0
/// Elements of tensors in memory and the type they are computed in. Another element type is added here: one
/// specialisation of Element, and every kernel template takes it.
#pragma once

#include "llmtrain/base/bf16.hpp"
#include "llmtrain/base/fp8.hpp"
#include "llmtrain/base/inline.hpp"

namespace llmtrain {

/// `Stats` is the type that elements of type T are computed and summed in (the "stats dtype" of kernels.hpp).
template <class T>
struct Element;
template <>
struct Element<float> {
  using Stats = float;
};
template <>
struct Element<double> {
  using Stats = double;
};
template <>
struct Element<Bf16> {
  using Stats = float;
};
template <int exponent_bits>
struct Element<Fp8<exponent_bits>> {
  using Stats = float;
};
template <class T>
using StatsType = typename Element<T>::Stats;

template <class T>
LLMTRAIN_INLINE StatsType<T> load(const T& element) {
  return static_cast<StatsType<T>>(element);
}

/// Stores with rounding to nearest even.
template <class T, class S>
LLMTRAIN_INLINE void store(T& element, S value) {
  element = static_cast<T>(value);
}

}  // namespace llmtrain
