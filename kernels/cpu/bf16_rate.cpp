// SPDX-License-Identifier: Apache-2.0
/// Independent chains of both instructions, enough that only their rates count.
#include "cpu/bf16_rate.hpp"

#if defined(__AVX512BF16__)
#include <immintrin.h>

#include <algorithm>

#include "llmtrain/base/clock.hpp"
#endif

namespace llmtrain {

#if defined(__AVX512BF16__)
namespace {

/// Seconds of 512 times eight instructions next(sum), which wait for none of the others.
template <class Next>
double seconds_of(const Next& next) {
  __m512 a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{};
  const Stopwatch watch;
  for (int round = 0; round < 512; ++round) {
    a = next(a), b = next(b), c = next(c), d = next(d), e = next(e), f = next(f), g = next(g), h = next(h);
    asm volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h));  // folds none
  }
  return watch.seconds();
}

}  // namespace

bool bf16_vectors_are_slow() {
  static const bool slow = [] {
    const __m512 ones = _mm512_set1_ps(1);
    const __m512bh pairs = _mm512_cvtne2ps_pbh(ones, ones);
    double products = 1, multiply_adds = 1;  // the least of several, in turn: what an interrupt takes does not count
    for (int go = 0; go < 10; ++go) {
      products = std::min(products, seconds_of([&](__m512 sum) { return _mm512_dpbf16_ps(sum, pairs, pairs); }));
      multiply_adds = std::min(multiply_adds, seconds_of([&](__m512 sum) { return _mm512_fmadd_ps(ones, ones, sum); }));
    }
    return products > 2.8 * multiply_adds;  // for twice as many products
  }();
  return slow;
}
#else
bool bf16_vectors_are_slow() { return false; }
#endif

}  // namespace llmtrain
