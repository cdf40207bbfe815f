// SPDX-License-Identifier: Apache-2.0
/// Attention described to cuDNN, through its header-only C++ frontend (github.com/NVIDIA/cudnn-frontend). With document
/// masks each document is an entry of a batch of packed sequences ("ragged" in cuDNN's words). A graph has a fixed number
/// of entries, a power of two, of which the last may be empty: which documents there are is read on the device.
#include "cuda/attention_graphs.hpp"

#ifdef LLMTRAIN_CUDNN_FRONTEND

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <algorithm>

namespace llmtrain {

namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using Attributes = std::shared_ptr<Tensor_attributes>;

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  fail(ExitCode::internal, "cuDNN: {}: {}", call, cudnnGetErrorString(status));
}

void set_offsets(fe::graph::Graph& graph, Tensor_attributes& to, const AttentionKey& key, const Port& port) {
  if (key.documents == 0) return;
  to.set_ragged_offset(graph.tensor(Tensor_attributes()
                                        .set_uid(port.offsets())
                                        .set_data_type(fe::DataType_t::INT64)
                                        .set_dim({key.documents + 1, 1, 1, 1})
                                        .set_stride({1, 1, 1, 1})));
}

/// Gives a tensor of [entries, heads, sequence, head_dim] its place: tokens lie `leading` elements apart.
void place(fe::graph::Graph& graph, Tensor_attributes& to, const AttentionKey& key, const Port& port,
           std::int64_t heads, const AttentionTensors& t) {
  const std::int64_t leading = (t.*port.tensor).leading;
  to.set_uid(port.uid)
      .set_dim({key.entries(), heads, key.length(), key.head_dim})
      .set_stride({key.length() * leading, key.head_dim, leading, 1});
  set_offsets(graph, to, key, port);
}

Attributes input(fe::graph::Graph& graph, const AttentionKey& key, const Port& port, std::int64_t heads,
                 const AttentionTensors& t) {
  Tensor_attributes attributes;
  place(graph, attributes, key, port, heads, t);
  return graph.tensor(attributes);
}
void output(fe::graph::Graph& graph, const Attributes& to, const AttentionKey& key, const Port& port,
            std::int64_t heads, const AttentionTensors& t) {
  place(graph, to->set_output(true), key, port, heads, t);
}
/// Documents: [tokens, heads]. The backward pass: dense [batch, heads, sequence], all that it takes. The forward pass
/// writes [heads, tokens] in place.
void place_lse(fe::graph::Graph& graph, Tensor_attributes& to, const AttentionKey& key, const AttentionTensors& t) {
  to.set_uid(lse_port.uid)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_dim({key.entries(), key.heads, key.length(), 1})
      .set_stride(key.documents > 0 ? std::vector<std::int64_t>{key.heads * key.length(), 1, key.heads, 1}
                  : key.backward    ? std::vector<std::int64_t>{key.heads * key.sequence, key.sequence, 1, 1}
                                    : std::vector<std::int64_t>{key.sequence, t.lse.leading, 1, 1});
  set_offsets(graph, to, key, lse_port);
}

/// The causal mask, the window where there is one, and the documents.
template <class Options>
void mask(fe::graph::Graph& graph, Options& options, const AttentionKey& key) {
  options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
  if (key.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(std::min(key.window, key.sequence)));
  if (key.documents == 0) return;
  const Attributes lengths = graph.tensor(Tensor_attributes()
                                              .set_uid(lengths_uid)
                                              .set_data_type(fe::DataType_t::INT32)
                                              .set_dim({key.documents, 1, 1, 1})
                                              .set_stride({1, 1, 1, 1}));
  options.set_padding_mask(true).set_seq_len_q(lengths).set_seq_len_kv(lengths);
}

void describe_forward(fe::graph::Graph& graph, const AttentionKey& key, const AttentionTensors& t) {
  auto options = fe::graph::SDPA_attributes()
                     .set_name("attention")
                     .set_generate_stats(true)
                     .set_attn_scale(static_cast<float>(key.scale));
  mask(graph, options, key);
  const auto [out, lse] =
      graph.sdpa(input(graph, key, q_port, key.heads, t), input(graph, key, k_port, key.kv_heads, t),
                 input(graph, key, v_port, key.kv_heads, t), options);
  output(graph, out, key, out_port, key.heads, t);
  place_lse(graph, lse->set_output(true), key, t);
}

void describe_backward(fe::graph::Graph& graph, const AttentionKey& key, const AttentionTensors& t,
                       bool deterministic) {
  auto options = fe::graph::SDPA_backward_attributes()
                     .set_name("attention gradient")
                     .set_attn_scale(static_cast<float>(key.scale))
                     .set_deterministic_algorithm(deterministic);
  mask(graph, options, key);
  if (key.documents > 0) {  // workspace for the tokens that there are, not for every entry as many
    const auto tokens = static_cast<int>(key.length());
    options.set_max_total_seq_len_q(tokens).set_max_total_seq_len_kv(tokens);
  }
  Tensor_attributes lse;
  place_lse(graph, lse, key, t);
  const auto [d_q, d_k, d_v] =
      graph.sdpa_backward(input(graph, key, q_port, key.heads, t), input(graph, key, k_port, key.kv_heads, t),
                          input(graph, key, v_port, key.kv_heads, t), input(graph, key, out_port, key.heads, t),
                          input(graph, key, d_out_port, key.heads, t), graph.tensor(lse), options);
  output(graph, d_q, key, d_q_port, key.heads, t);
  output(graph, d_k, key, d_k_port, key.kv_heads, t);
  output(graph, d_v, key, d_v_port, key.kv_heads, t);
}

}  // namespace

AttentionGraphs::AttentionGraphs(bool deterministic) : deterministic_(deterministic) {
  cudnnHandle_t handle = nullptr;
  check_cudnn(cudnnCreate(&handle), "cudnnCreate");
  handle_ = handle;
}
AttentionGraphs::~AttentionGraphs() { cudnnDestroy(static_cast<cudnnHandle_t>(handle_)); }

void AttentionGraphs::build(Built& result, const AttentionKey& key, const AttentionTensors& t) const {
  if (key.documents > 0 && cudnnGetVersion() < 91800) {  // github.com/NVIDIA/TransformerEngine/issues/2186
    result.refusal = "it has document masks, with which gradients of cuDNN before 9.18 can be NaN";
    return;
  }
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  if (key.backward) {
    describe_backward(*graph, key, t, deterministic_);
  } else {
    describe_forward(*graph, key, t);
  }
  fe::error_t status = graph->build(static_cast<cudnnHandle_t>(handle_), {fe::HeurMode_t::A});
  if (status.is_good()) status = graph->get_workspace_size(result.workspace);
  if (status.is_bad()) {
    result.refusal = status.get_message();
  } else {
    result.graph = std::move(graph);
  }
}

void AttentionGraphs::run(const Built& built, cudaStream_t stream, std::unordered_map<std::int64_t, void*>& pointers,
                          void* workspace) {
  const auto handle = static_cast<cudnnHandle_t>(handle_);
  check_cudnn(cudnnSetStream(handle, stream), "cudnnSetStream");
  fe::error_t status = built.graph->execute(handle, pointers, workspace);
  require(status.is_good(), ExitCode::internal, "cuDNN: attention: {}", status.get_message());
}

}  // namespace llmtrain

#else

namespace llmtrain {

AttentionGraphs::AttentionGraphs(bool deterministic) : deterministic_(deterministic) {}
AttentionGraphs::~AttentionGraphs() = default;

void AttentionGraphs::build(Built& result, const AttentionKey&, const AttentionTensors&) const {
  result.refusal = "this build was made without the headers of cuDNN's frontend (pip install nvidia-cudnn-frontend)";
}

void AttentionGraphs::run(const Built&, cudaStream_t, std::unordered_map<std::int64_t, void*>&, void*) {
  LLMTRAIN_CHECK(false);
}

}  // namespace llmtrain

#endif

namespace llmtrain {

const AttentionGraphs::Built& AttentionGraphs::of(const AttentionKey& key, const AttentionTensors& t) {
  const auto [place, fresh] = built_.try_emplace(key);
  if (fresh) build(place->second, key, t);
  return place->second;
}

}  // namespace llmtrain
