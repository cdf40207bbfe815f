// SPDX-License-Identifier: Apache-2.0
/// The norm of the gradient, the scalars of a step and the AdamW update, on the CPU.
#include <cmath>
#include <cstring>

#include "common/adamw.hpp"
#include "common/step_scalars.hpp"
#include "cpu/cpu_kernels.hpp"
#include "cpu/loops.hpp"

namespace llmtrain {

void CpuKernels::do_sum_squares(Stream, Tensor totals, Tensor x) {
  constexpr std::int64_t width = 4096, group = 1024;  // elements of a block, blocks whose sums fit the stack
  double sum = 0;
  dispatch("sum_squares", x.dtype, [&]<class T>(T) {
    const T* const data = x.ptr<T>();
    const std::int64_t n = x.numel(), blocks = (n + width - 1) / width;
    double partial[group];
    for (std::int64_t first = 0; first < blocks; first += group) {
      const std::int64_t count = std::min(group, blocks - first);
#pragma omp parallel for schedule(static) if (n >= parallel_threshold)
      for (std::int64_t b = 0; b < count; ++b) {
        const std::int64_t begin = (first + b) * width;
        const T* const block = data + begin;
        partial[b] = lane_sum<double>(std::min(width, n - begin), [&](std::int64_t i) {
          const double value = static_cast<double>(load(block[i]));
          return value * value;
        });
      }
      for (std::int64_t b = 0; b < count; ++b) sum += partial[b];
    }
  });
  double* const out = totals.ptr<double>();
  out[2] += sum;
  if (!std::isfinite(sum)) out[3] = 1;
}

void CpuKernels::do_step_scalars(Stream, Tensor scalars, Tensor totals, const StepInputs& inputs) {
  StepTotals sums;
  std::memcpy(&sums, totals.data, sizeof sums);
  const StepScalars s = step_scalars_of(sums, StepFactors(inputs));
  std::memcpy(scalars.data, &s, sizeof s);
}

namespace {

/// The arrays of one update; `weights` may be null.
template <class S, class M, class W, class G>
struct AdamWArrays {
  S* master;
  M *m, *v;
  W* weights;
  const G* gradient;

  void update(const AdamWFactors<S>& factors, std::int64_t begin, std::int64_t end) const {
    if (weights != nullptr) {
      run<true>(factors, begin, end);
    } else {
      run<false>(factors, begin, end);
    }
  }

 private:
  template <bool publish>
  void run(const AdamWFactors<S>& factors, std::int64_t begin, std::int64_t end) const {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      S p = master[i], m1 = load(m[i]), v1 = load(v[i]);
      adamw_update(factors, static_cast<S>(load(gradient[i])), p, m1, v1);
      master[i] = p;
      store(m[i], m1);
      store(v[i], v1);
      if constexpr (publish) store(weights[i], p);
    }
  }
};

}  // namespace

void CpuKernels::do_adamw(Stream, Tensor master, Tensor m, Tensor v, Tensor weights, Tensor gradient, Tensor scalars,
                          const AdamWOptions& options) {
  StepScalars s;
  std::memcpy(&s, scalars.data, sizeof s);
  if (s.apply == 0) return;
  dispatch_stats("adamw", master.dtype, [&]<class S>(S) {
    dispatch_stored<S>("adamw's moments", m.dtype, [&]<class M>(M) {
      dispatch("adamw's weights", weights ? weights.dtype : master.dtype, [&]<class W>(W) {
        dispatch_stored<S>("adamw's gradient", gradient.dtype, [&]<class G>(G) {
          const AdamWFactors<S> factors(s, options);
          const AdamWArrays<S, M, W, G> arrays{master.ptr<S>(), m.ptr<M>(), v.ptr<M>(),
                                               weights ? weights.ptr<W>() : nullptr, gradient.ptr<G>()};
          for_blocks({master},
                     [&](std::int64_t, std::int64_t begin, std::int64_t end) { arrays.update(factors, begin, end); });
        });
      });
    });
  });
}

}  // namespace llmtrain
