// SPDX-License-Identifier: Apache-2.0
/// Dropout on the GPU: masks are drawn again in the backward pass, not stored.
#include "common/dropout.hpp"

#include "cuda/cuda_kernels.hpp"
#include "cuda/loops.cuh"

namespace llmtrain {

namespace {

/// out = factor (x + bias): products, no selection, so that a value that is not finite does not get lost.
template <class T>
struct BiasDropout {
  template <int width>
  struct Body {
    Matrix<T> out, x, bias;
    const std::int64_t* samples;
    DropoutKey key;
    std::uint32_t threshold;
    StatsType<T> scale;

    __device__ void operator()(std::int64_t r, std::int64_t c) const {
      const auto token = static_cast<std::uint32_t>(key.first_token + r),
                 sequence = static_cast<std::uint32_t>(key.sequence);
      const std::int64_t sample = samples[token / sequence], position = token % sequence;
      auto values = x.template values<width>(r, c);
      if (bias) {
        const auto offset = bias.template values<width>(0, c);
#pragma unroll
        for (int i = 0; i < width; ++i) values.at[i] += offset.at[i];
      }
      PhiloxWords words{};
#pragma unroll
      for (int i = 0; i < width; ++i) {
        if (i % dropout_features == 0) words = dropout_words(key, sample, position, (c + i) / dropout_features);
        const int lane = width == 1 ? static_cast<int>(c % dropout_features) : i % static_cast<int>(dropout_features);
        values.at[i] *= words.word[lane] >= threshold ? scale : StatsType<T>{0};
      }
      out.put(r, c, values);
    }
  };
};

/// Tokens of a micro-batch stay far below 2^32 (their activations would not fit).
template <class T>
void apply(cudaStream_t stream, const char* operation, Tensor out, Tensor x, Tensor bias, Tensor samples,
           const DropoutKey& key) {
  constexpr int full = std::max(full_width<T>, static_cast<int>(dropout_features));
  const auto scale = static_cast<StatsType<T>>(1 / (1 - key.probability));
  for_columns<BiasDropout<T>::template Body, full>(stream, operation, {out, x}, {bias}, Matrix<T>(out), Matrix<T>(x),
                                                   Matrix<T>(bias), samples.ptr<std::int64_t>(), key,
                                                   dropout_threshold(key.probability), scale);
}

}  // namespace

void CudaKernels::do_bias_dropout(Stream s, Tensor out, Tensor x, Tensor bias, Tensor samples, const DropoutKey& key) {
  dispatch("bias_dropout", x.dtype,
           [&]<class T>(T) { apply<T>(streams_[s], "bias_dropout", out, x, bias, samples, key); });
}

void CudaKernels::do_dropout_backward(Stream s, Tensor d_x, Tensor d_out, Tensor samples, const DropoutKey& key) {
  dispatch("dropout_backward", d_out.dtype,
           [&]<class T>(T) { apply<T>(streams_[s], "dropout_backward", d_x, d_out, {}, samples, key); });
}

}  // namespace llmtrain
