// SPDX-License-Identifier: Apache-2.0
/// Elements of tensors in memory and the type they are computed in. A narrower element type (bf16) is added here: one
/// specialisation of Element, and every kernel template takes it.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/inline.hpp"

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

/// The same bits as another type of the same size.
template <class To, class From>
LLMTRAIN_INLINE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

}  // namespace llmtrain
