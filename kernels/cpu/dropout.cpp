// SPDX-License-Identifier: Apache-2.0
/// Dropout on the CPU: masks are drawn again in the backward pass, not stored.
#include "common/dropout.hpp"

#include "cpu/cpu_kernels.hpp"
#include "cpu/loops.hpp"

namespace llmtrain {

namespace {

constexpr std::int64_t chunk = 128;  // blocks of random words that wait on the stack: two loops that vectorise

/// body(c, factor) for features [0, cols) of one token: factor is `scale` where kept, 0 where dropped.
template <class S, class Body>
void for_features(const DropoutKey& key, std::int64_t sample, std::int64_t position, std::int64_t cols, S scale,
                  Body&& body) {
  const std::uint32_t threshold = dropout_threshold(key.probability);
  PhiloxWords words[chunk];
  constexpr std::int64_t width = chunk * dropout_features;
  for (std::int64_t begin = 0; begin < cols; begin += width) {
    const std::int64_t n = std::min(width, cols - begin);
    const std::int64_t quads = (n + dropout_features - 1) / dropout_features;
#pragma omp simd
    for (std::int64_t q = 0; q < quads; ++q) {
      words[q] = dropout_words(key, sample, position, begin / dropout_features + q);
    }
    const std::uint32_t* const word = reinterpret_cast<const std::uint32_t*>(words);
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      body(begin + i, word[i] >= threshold ? scale : S{0});
    }
  }
}

/// out = factor (x + bias)
template <class T>
void apply(const Tensor& out, const Tensor& x, const Tensor& bias, const Tensor& samples, const DropoutKey& key) {
  using S = StatsType<T>;
  const Matrix<T> to(out), from(x);
  const T* const offset = bias ? bias.ptr<T>() : nullptr;
  const std::int64_t* const sample = samples.ptr<std::int64_t>();
  const S scale = static_cast<S>(1 / (1 - key.probability));
#pragma omp parallel for schedule(static) if (to.rows * to.cols >= parallel_threshold)
  for (std::int64_t t = 0; t < to.rows; ++t) {
    const std::int64_t token = key.first_token + t;
    const std::int64_t number = sample[token / key.sequence], position = token % key.sequence;
    T* const y = to.row(t);
    const T* const in = from.row(t);
    // Products, no selection: a value that is not finite must not get lost.
    if (offset != nullptr) {
      for_features(key, number, position, to.cols, scale,
                   [&](std::int64_t c, S factor) { store(y[c], factor * (load(in[c]) + load(offset[c]))); });
    } else {
      for_features(key, number, position, to.cols, scale,
                   [&](std::int64_t c, S factor) { store(y[c], factor * load(in[c])); });
    }
  }
}

}  // namespace

void CpuKernels::do_bias_dropout(Stream, Tensor out, Tensor x, Tensor bias, Tensor samples, const DropoutKey& key) {
  dispatch("bias_dropout", x.dtype, [&]<class T>(T) { apply<T>(out, x, bias, samples, key); });
}

void CpuKernels::do_dropout_backward(Stream, Tensor d_x, Tensor d_out, Tensor samples, const DropoutKey& key) {
  dispatch("dropout_backward", d_out.dtype, [&]<class T>(T) { apply<T>(d_x, d_out, {}, samples, key); });
}

}  // namespace llmtrain
