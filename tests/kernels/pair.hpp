// SPDX-License-Identifier: Apache-2.0
/// The same call on the kernels under test and, in fp64, on the CPU's.
#pragma once

#include "kernels.hpp"

namespace llmtrain::test {

inline Kernels& reference() {
  static const std::unique_ptr<Kernels> instance = make_cpu_kernels();
  return *instance;
}

/// The same numbers in T and in fp64. Outputs start poisoned.
template <class T>
struct Pair {
  Pair(std::vector<std::int64_t> shape, std::int64_t leading = 0) : tested(shape, leading), exact(shape, leading) {}
  static Pair random(Random& r, const std::vector<std::int64_t>& shape, std::int64_t leading = 0, double deviation = 1,
                     double mean = 0) {
    Pair p(shape, leading);
    p.tested = Buffer<T>::random(r, shape, leading, deviation, mean);
    for (std::int64_t i = 0; i < p.tested.numel(); ++i) p.exact.flat(i) = static_cast<double>(p.tested.flat(i));
    return p;
  }
  void check(const char* what, double bound) const { check_close(what, tested, exact.values(), bound); }

  Buffer<T> tested;
  Buffer<double> exact;
};

inline Buffer<std::uint8_t> space(std::int64_t bytes) {
  return Buffer<std::uint8_t>({std::max<std::int64_t>(bytes, 1)});
}

/// ||tested - exact|| / ||exact||
template <class T>
double relative_distance(const Pair<T>& p) {
  double errors = 0, squares = 0;
  for (std::int64_t i = 0; i < p.exact.numel(); ++i) {
    const double error = static_cast<double>(p.tested.flat(i)) - p.exact.flat(i);
    errors += error * error;
    squares += p.exact.flat(i) * p.exact.flat(i);
  }
  return std::sqrt(errors / squares);
}

}  // namespace llmtrain::test
