// SPDX-License-Identifier: Apache-2.0
/// Causal attention of the CUDA back end: by cuDNN where it can, else by kernels of our own.
#pragma once

#include <memory>
#include <string>

#include "cuda/streams.hpp"
#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

/// The tensors of one call; those of the backward pass are absent in the forward one.
struct AttentionTensors {
  Tensor q, k, v, out, lse, starts;
  Tensor d_q, d_k, d_v, d_out;
};

/// Plain kernels for every dtype, shape and option, of O(sequence^2) work without matrix units: the reference, and what
/// remains where cuDNN does not take a call. `delta` [heads, tokens] in the stats dtype is temporary.
void plain_attention_forward(cudaStream_t stream, const AttentionTensors& t, const AttentionOptions& options);
void plain_attention_backward(cudaStream_t stream, const AttentionTensors& t, Tensor delta,
                              const AttentionOptions& options);

/// packed [batch, heads, sequence] = lse [heads, batch * sequence], both fp32.
void pack_stats(cudaStream_t stream, Tensor packed, Tensor lse, const AttentionShape& shape);
/// to [n, m] = from [m, n] transposed, both fp32.
void transpose_stats(cudaStream_t stream, Tensor to, Tensor from);

/// Documents as batch entries of packed tensors, on the device: how many tokens each has, and where it begins in each
/// tensor, in elements. Entries beyond the last document are empty and lie at the end.
struct DocumentLayout {
  static constexpr int most_tensors = 9;

  std::int64_t capacity = 0;        ///< entries; 0 without document masks
  std::int32_t* begins = nullptr;   ///< [capacity + 1] first tokens
  std::int32_t* lengths = nullptr;  ///< [capacity]
  int tensors = 0;
  std::int64_t leading[most_tensors] = {};   ///< elements between tokens of each tensor
  std::int64_t* offsets[most_tensors] = {};  ///< [capacity + 1] each
};
/// Fills the layout from `starts` (see Kernels::attention_forward), which has no more documents than there are entries.
void lay_out_documents(cudaStream_t stream, const DocumentLayout& layout, Tensor starts, std::int64_t sequence);

class AttentionGraphs;

/// Attention of bf16 data as cuDNN graphs.
class CudnnAttention {
 public:
  explicit CudnnAttention(bool deterministic);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// False, with nothing done, where cuDNN does not take the call: see refusal().
  bool forward(cudaStream_t stream, const AttentionTensors& t, const AttentionOptions& options, Tensor workspace);
  bool backward(cudaStream_t stream, const AttentionTensors& t, const AttentionOptions& options, Tensor workspace);

  /// Why the last call was not taken, and whether that was a surprise: by cuDNN's word, not by what is known of it.
  const std::string& refusal() const { return refusal_; }
  bool surprised() const { return surprised_; }

 private:
  bool run(bool backward, cudaStream_t stream, const AttentionTensors& t, const AttentionOptions& options,
           Tensor workspace);

  bool deterministic_;
  std::unique_ptr<AttentionGraphs> graphs_;
  std::string refusal_;
  bool surprised_ = false;
};

}  // namespace llmtrain
