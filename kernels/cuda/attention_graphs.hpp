// SPDX-License-Identifier: Apache-2.0
/// Graphs of cuDNN for attention calls, each built at the first call of its shape and kept.
#pragma once

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "cuda/attention.hpp"

namespace cudnn_frontend::graph {
class Graph;
}

namespace llmtrain {

/// A tensor of a call: its number in a graph, and its place in AttentionTensors.
struct Port {
  std::int64_t uid;
  Tensor AttentionTensors::*tensor;

  std::int64_t offsets() const { return 100 + uid; }  ///< number of its documents' offsets
};
inline constexpr Port q_port{1, &AttentionTensors::q}, k_port{2, &AttentionTensors::k}, v_port{3, &AttentionTensors::v},
    out_port{4, &AttentionTensors::out}, lse_port{5, &AttentionTensors::lse}, d_out_port{6, &AttentionTensors::d_out},
    d_q_port{7, &AttentionTensors::d_q}, d_k_port{8, &AttentionTensors::d_k}, d_v_port{9, &AttentionTensors::d_v};
inline constexpr Port ports[] = {q_port, k_port, v_port, out_port, lse_port, d_out_port, d_q_port, d_k_port, d_v_port};
inline constexpr std::int64_t lengths_uid = 200;  ///< number of the documents' lengths
static_assert(std::size(ports) == DocumentLayout::most_tensors);

/// What a graph is built for: the call, and where its tensors' tokens lie.
struct AttentionKey {
  bool backward;
  std::int64_t batch, sequence, heads, kv_heads, head_dim, window;
  std::int64_t documents;  ///< that there is room for; 0 without masks
  double scale;
  std::vector<std::int64_t> leading;

  AttentionKey(bool is_backward, const AttentionTensors& t, const AttentionOptions& o)
      : backward(is_backward),
        batch(o.shape.batch),
        sequence(o.shape.sequence),
        heads(o.shape.heads),
        kv_heads(o.shape.kv_heads),
        head_dim(o.shape.head_dim),
        window(o.window),
        documents(t.starts ? capacity_for(o.documents) : 0),
        scale(o.scale) {
    for (const Port& port : ports) leading.push_back((t.*port.tensor).leading);
  }
  /// Batch entries of a graph that takes so many documents: few numbers, as each is a graph to be built in mid-training.
  static std::int64_t capacity_for(std::int64_t documents) {
    constexpr std::int64_t least = 8;
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max(documents, least))));
  }
  std::int64_t entries() const { return documents > 0 ? documents : batch; }
  /// Tokens that an entry may have; a document may have all, with which results were right (cuDNN 9.19, H200).
  std::int64_t length() const { return documents > 0 ? batch * sequence : sequence; }

  auto tied() const {
    return std::tie(backward, batch, sequence, heads, kv_heads, head_dim, window, documents, scale, leading);
  }
  bool operator<(const AttentionKey& other) const { return tied() < other.tied(); }
};

class AttentionGraphs {
 public:
  explicit AttentionGraphs(bool deterministic);
  ~AttentionGraphs();
  AttentionGraphs(const AttentionGraphs&) = delete;
  AttentionGraphs& operator=(const AttentionGraphs&) = delete;

  /// A graph, or why there is none.
  struct Built {
    std::shared_ptr<cudnn_frontend::graph::Graph> graph;
    std::int64_t workspace = 0;  ///< bytes
    std::string refusal;
  };
  /// `t`: dtypes and leading dimensions are read.
  const Built& of(const AttentionKey& key, const AttentionTensors& t);
  /// `pointers` by number; `built` has a graph.
  void run(const Built& built, cudaStream_t stream, std::unordered_map<std::int64_t, void*>& pointers, void* workspace);

 private:
  void build(Built& result, const AttentionKey& key, const AttentionTensors& t) const;

  bool deterministic_;
  void* handle_ = nullptr;  ///< of cuDNN; null where the module was built without its frontend
  std::map<AttentionKey, Built> built_;
};

}  // namespace llmtrain
