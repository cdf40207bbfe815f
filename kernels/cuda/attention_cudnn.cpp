// SPDX-License-Identifier: Apache-2.0
/// Attention as graphs of cuDNN, through its header-only C++ frontend (github.com/NVIDIA/cudnn-frontend).
#include <fmt/format.h>

#include <algorithm>

#include "cuda/attention.hpp"
#include "llmtrain/backend/workspace.hpp"

#ifdef LLMTRAIN_CUDNN_FRONTEND

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace llmtrain {

namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using Attributes = std::shared_ptr<Tensor_attributes>;

enum Uid : std::int64_t { q_uid = 1, k_uid, v_uid, out_uid, lse_uid, d_out_uid, d_q_uid, d_k_uid, d_v_uid };

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  fail(ExitCode::internal, "cuDNN: {}: {}", call, cudnnGetErrorString(status));
}

/// What a graph is built for: the call, and where its tensors' tokens lie.
struct Key {
  bool backward;
  std::int64_t batch, sequence, heads, kv_heads, head_dim, window;
  double scale;
  std::vector<std::int64_t> leading;

  Key(bool is_backward, const AttentionTensors& t, const AttentionOptions& o)
      : backward(is_backward),
        batch(o.shape.batch),
        sequence(o.shape.sequence),
        heads(o.shape.heads),
        kv_heads(o.shape.kv_heads),
        head_dim(o.shape.head_dim),
        window(o.window),
        scale(o.scale) {
    for (const Tensor* x : {&t.q, &t.k, &t.v, &t.out, &t.lse, &t.d_out, &t.d_q, &t.d_k, &t.d_v}) {
      leading.push_back(x->leading);
    }
  }
  auto tied() const { return std::tie(backward, batch, sequence, heads, kv_heads, head_dim, window, scale, leading); }
  bool operator<(const Key& other) const { return tied() < other.tied(); }
};

/// Why cuDNN cannot take a call whatever its version; empty if it may.
std::string known_refusal(const AttentionTensors& t, const AttentionOptions& options) {
  if (t.q.dtype != DType::bf16) return "its data are not bf16";
  if (t.starts) return "it has document masks";
  if (options.soft_cap != 0) return "it has a soft-cap";
  if (options.shape.head_dim % 8 != 0) return "its head_dim is no multiple of 8";
  for (const Tensor* x : {&t.q, &t.k, &t.v, &t.out, &t.d_out, &t.d_q, &t.d_k, &t.d_v}) {
    if (*x && (reinterpret_cast<std::uintptr_t>(x->data) % 16 != 0 || x->leading % 8 != 0)) {
      return "its tensors are not aligned to 16 bytes";
    }
  }
  return {};
}

}  // namespace

struct CudnnAttention::Graphs {
  /// A built graph, or why there is none.
  struct Built {
    std::unique_ptr<fe::graph::Graph> graph;
    std::int64_t workspace = 0;
    std::string refusal;
  };

  explicit Graphs(bool is_deterministic) : deterministic(is_deterministic) {
    check_cudnn(cudnnCreate(&handle), "cudnnCreate");
  }
  ~Graphs() { cudnnDestroy(handle); }

  const Built& of(const Key& key, const AttentionTensors& t) {
    const auto [place, fresh] = built.try_emplace(key);
    if (fresh) build(place->second, key, t);
    return place->second;
  }

  void build(Built& result, const Key& key, const AttentionTensors& t) const {
    auto graph = std::make_unique<fe::graph::Graph>();
    graph->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (key.backward) {
      describe_backward(*graph, key, t);
    } else {
      describe_forward(*graph, key, t);
    }
    fe::error_t status = graph->build(handle, {fe::HeurMode_t::A});
    if (status.is_good()) status = graph->get_workspace_size(result.workspace);
    if (status.is_bad()) {
      result.refusal = status.get_message();
    } else {
      result.graph = std::move(graph);
    }
  }

  /// [batch, heads, sequence, head_dim] over tokens that lie `leading` elements apart.
  static Tensor_attributes heads_of(const Key& key, Uid uid, std::int64_t heads, const Tensor& t) {
    return Tensor_attributes()
        .set_uid(uid)
        .set_dim({key.batch, heads, key.sequence, key.head_dim})
        .set_stride({key.sequence * t.leading, key.head_dim, t.leading, 1});
  }
  static void place_heads(const Attributes& to, const Key& key, Uid uid, std::int64_t heads, const Tensor& t) {
    to->set_output(true)
        .set_uid(uid)
        .set_dim({key.batch, heads, key.sequence, key.head_dim})
        .set_stride({key.sequence * t.leading, key.head_dim, t.leading, 1});
  }
  /// Dense [batch, heads, sequence, 1], all that the backward pass takes.
  static Tensor_attributes packed_lse(const Key& key) {
    return Tensor_attributes()
        .set_uid(lse_uid)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({key.batch, key.heads, key.sequence, 1})
        .set_stride({key.heads * key.sequence, key.sequence, 1, 1});
  }

  /// The causal mask, and the window where there is one.
  template <class Options>
  static void mask(Options& options, const Key& key) {
    options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
    if (key.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(std::min(key.window, key.sequence)));
  }

  static void describe_forward(fe::graph::Graph& graph, const Key& key, const AttentionTensors& t) {
    auto options = fe::graph::SDPA_attributes()
                       .set_name("attention")
                       .set_generate_stats(true)
                       .set_attn_scale(static_cast<float>(key.scale));
    mask(options, key);
    const auto [out, lse] = graph.sdpa(graph.tensor(heads_of(key, q_uid, key.heads, t.q)),
                                       graph.tensor(heads_of(key, k_uid, key.kv_heads, t.k)),
                                       graph.tensor(heads_of(key, v_uid, key.kv_heads, t.v)), options);
    place_heads(out, key, out_uid, key.heads, t.out);
    lse->set_output(true)
        .set_uid(lse_uid)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({key.batch, key.heads, key.sequence, 1})
        .set_stride({key.sequence, t.lse.leading, 1, 1});
  }

  void describe_backward(fe::graph::Graph& graph, const Key& key, const AttentionTensors& t) const {
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_name("attention gradient")
                       .set_attn_scale(static_cast<float>(key.scale))
                       .set_deterministic_algorithm(deterministic);
    mask(options, key);
    const auto [d_q, d_k, d_v] = graph.sdpa_backward(
        graph.tensor(heads_of(key, q_uid, key.heads, t.q)), graph.tensor(heads_of(key, k_uid, key.kv_heads, t.k)),
        graph.tensor(heads_of(key, v_uid, key.kv_heads, t.v)), graph.tensor(heads_of(key, out_uid, key.heads, t.out)),
        graph.tensor(heads_of(key, d_out_uid, key.heads, t.d_out)), graph.tensor(packed_lse(key)), options);
    place_heads(d_q, key, d_q_uid, key.heads, t.d_q);
    place_heads(d_k, key, d_k_uid, key.kv_heads, t.d_k);
    place_heads(d_v, key, d_v_uid, key.kv_heads, t.d_v);
  }

  bool deterministic;
  cudnnHandle_t handle = nullptr;
  std::map<Key, Built> built;
};

CudnnAttention::CudnnAttention(bool deterministic)
    : deterministic_(deterministic), graphs_(std::make_unique<Graphs>(deterministic)) {}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::run(bool backward, cudaStream_t stream, const AttentionTensors& t, const AttentionOptions& options,
                         Tensor workspace) {
  refusal_ = known_refusal(t, options);
  surprised_ = false;
  if (!refusal_.empty()) return false;
  Tensor lse = t.lse;
  if (backward) {  // packed at the workspace's beginning
    const AttentionShape& shape = options.shape;
    const std::int64_t count = t.lse.numel(), bytes = (count * size_of(DType::fp32) + 255) / 256 * 256;
    LLMTRAIN_CHECK(workspace.bytes() >= bytes);
    lse = Tensor::dense(workspace.data, DType::fp32, {shape.batch, shape.heads, shape.sequence});
    workspace = workspace.flat(bytes, workspace.bytes() - bytes);
  }
  const Graphs::Built& built = graphs_->of(Key(backward, t, options), t);
  refusal_ = built.refusal;
  if (built.graph != nullptr && built.workspace > workspace.bytes()) {
    refusal_ =
        fmt::format("it needs {} bytes of workspace, the memory plan has {}", built.workspace, workspace.bytes());
  }
  surprised_ = !refusal_.empty();
  if (surprised_) return false;
  if (backward) pack_stats(stream, lse, t.lse, options.shape);
  std::unordered_map<std::int64_t, void*> pointers;
  for (const auto& [uid, tensor] : {std::pair<Uid, const Tensor*>{q_uid, &t.q},
                                    {k_uid, &t.k},
                                    {v_uid, &t.v},
                                    {out_uid, &t.out},
                                    {lse_uid, &lse},
                                    {d_out_uid, &t.d_out},
                                    {d_q_uid, &t.d_q},
                                    {d_k_uid, &t.d_k},
                                    {d_v_uid, &t.d_v}}) {
    if (*tensor) pointers[uid] = tensor->data;
  }
  check_cudnn(cudnnSetStream(graphs_->handle, stream), "cudnnSetStream");
  fe::error_t status = built.graph->execute(graphs_->handle, pointers, workspace.data);
  require(status.is_good(), ExitCode::internal, "cuDNN: attention: {}", status.get_message());
  return true;
}

}  // namespace llmtrain

#else

namespace llmtrain {

struct CudnnAttention::Graphs {};

CudnnAttention::CudnnAttention(bool deterministic) : deterministic_(deterministic) {}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::run(bool, cudaStream_t, const AttentionTensors&, const AttentionOptions&, Tensor) {
  surprised_ = true;
  refusal_ = "this build was made without the headers of cuDNN's frontend (pip install nvidia-cudnn-frontend)";
  return false;
}

}  // namespace llmtrain

#endif

namespace llmtrain {

bool CudnnAttention::forward(cudaStream_t stream, const AttentionTensors& t, const AttentionOptions& options,
                             Tensor workspace) {
  return run(false, stream, t, options, workspace);
}

namespace {

/// Heads [first, first + count) of `sequences` sequences from number `begin` on.
Tensor part_of(const Tensor& t, const AttentionShape& shape, std::int64_t begin, std::int64_t sequences,
               std::int64_t first, std::int64_t count) {
  return t.rows_at(begin * shape.sequence, sequences * shape.sequence)
      .cols_at(first * shape.head_dim, count * shape.head_dim)
      .with_inner({count, shape.head_dim});
}

std::int64_t largest_divisor(std::int64_t n, std::int64_t limit) {
  std::int64_t divisor = std::clamp<std::int64_t>(limit, 1, n);
  while (n % divisor != 0) --divisor;
  return divisor;
}

}  // namespace

/// The repeatable algorithm keeps the gradients of all scores: a call is cut into as many sequences, or kv heads of one
/// sequence, as the workspace has room for.
bool CudnnAttention::backward(cudaStream_t stream, const AttentionTensors& t, const AttentionOptions& options,
                              Tensor workspace) {
  if (!deterministic_) return run(true, stream, t, options, workspace);
  const AttentionShape& shape = options.shape;
  const std::int64_t group = shape.heads / shape.kv_heads, unit = attention_scores_bytes(shape);
  const std::int64_t rest = attention_fixed_bytes(shape, DType::fp32), room = workspace.bytes() - rest;
  AttentionOptions slice = options;
  slice.shape.kv_heads = largest_divisor(shape.kv_heads, room / unit);
  slice.shape.heads = slice.shape.kv_heads * group;
  const bool whole = slice.shape.kv_heads == shape.kv_heads;
  slice.shape.batch = whole ? largest_divisor(shape.batch, room / unit / shape.kv_heads) : 1;
  for (std::int64_t begin = 0; begin < shape.batch; begin += slice.shape.batch) {
    for (std::int64_t first = 0; first < shape.kv_heads; first += slice.shape.kv_heads) {
      const auto queries = [&](const Tensor& x) {
        return part_of(x, shape, begin, slice.shape.batch, first * group, slice.shape.heads);
      };
      const auto keys = [&](const Tensor& x) {
        return part_of(x, shape, begin, slice.shape.batch, first, slice.shape.kv_heads);
      };
      const Tensor lse = t.lse.rows_at(first * group, slice.shape.heads)
                             .cols_at(begin * shape.sequence, slice.shape.batch * shape.sequence);
      const AttentionTensors part{queries(t.q), keys(t.k),      keys(t.v),   queries(t.out), lse,
                                  t.starts,     queries(t.d_q), keys(t.d_k), keys(t.d_v),    queries(t.d_out)};
      if (!run(true, stream, part, slice, workspace)) return false;
    }
  }
  return true;
}

}  // namespace llmtrain
