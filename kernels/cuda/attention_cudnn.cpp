// SPDX-License-Identifier: Apache-2.0
/// Attention calls given to cuDNN's graphs: what it wants laid out otherwise, and how much of a call at once.
#include <fmt/format.h>

#include <algorithm>

#include "cuda/attention_graphs.hpp"
#include "llmtrain/backend/workspace.hpp"

namespace llmtrain {

namespace {

/// Why cuDNN cannot take a call whatever its version; empty if it may.
std::string known_refusal(const AttentionTensors& t, const AttentionOptions& options) {
  if (t.q.dtype != DType::bf16) return "its data are not bf16";
  if (t.starts && options.documents > cuda_most_documents) {
    return fmt::format("it has {} documents, more than {}", options.documents, cuda_most_documents);
  }
  if (options.soft_cap != 0) return "it has a soft-cap";
  if (options.shape.head_dim % 8 != 0) return "its head_dim is no multiple of 8";
  for (const Port& port : ports) {
    const Tensor& x = t.*port.tensor;
    const bool statistics = port.uid == lse_port.uid;
    if (x && !statistics && (reinterpret_cast<std::uintptr_t>(x.data) % 16 != 0 || x.leading % 8 != 0)) {
      return "its tensors are not aligned to 16 bytes";
    }
  }
  return {};
}

/// Hands out a workspace from its beginning.
class Cursor {
 public:
  explicit Cursor(const Tensor& workspace) : rest_(workspace) {}

  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape) {
    const Tensor taken = Tensor::dense(rest_.data, dtype, shape);
    const std::int64_t bytes = std::min((taken.bytes() + 255) / 256 * 256, rest_.bytes());
    fits_ = fits_ && taken.bytes() <= rest_.bytes();
    rest_ = rest_.flat(bytes, rest_.bytes() - bytes);
    return taken;
  }
  const Tensor& rest() const { return rest_; }
  bool fits() const { return fits_; }  ///< whether there was room for all that was taken

 private:
  Tensor rest_;
  bool fits_ = true;
};

/// The call as cuDNN takes it: tensors that it wants laid out otherwise get places in the workspace.
AttentionTensors take_tensors(Cursor& workspace, bool backward, const AttentionTensors& t, const AttentionShape& s) {
  const std::int64_t tokens = s.batch * s.sequence;
  AttentionTensors given = t;
  if (t.starts) {
    given.lse = workspace.take(DType::fp32, {tokens, s.heads});
  } else if (backward) {
    given.lse = workspace.take(DType::fp32, {s.batch, s.heads, s.sequence});
  }
  if (t.starts && backward) {
    // cuDNN's own workspace has the gradients' gaps between rows, once a query head. Its fp32 sum of d_q finds documents by
    // q's offsets, so that q is to lie as d_q does (cuDNN 9.19 on an H200: d_q was wrong from the second document on).
    given.q = workspace.take(t.q.dtype, {tokens, s.heads, s.head_dim});
    given.d_q = workspace.take(t.d_q.dtype, {tokens, s.heads, s.head_dim});
    given.d_k = workspace.take(t.d_k.dtype, {tokens, s.kv_heads, s.head_dim});
    given.d_v = workspace.take(t.d_v.dtype, {tokens, s.kv_heads, s.head_dim});
  }
  return given;
}

DocumentLayout take_layout(Cursor& workspace, std::int64_t capacity, const AttentionTensors& given) {
  DocumentLayout layout;
  if (capacity == 0) return layout;
  layout.capacity = capacity;
  layout.begins = workspace.take(DType::int32, {capacity + 1}).ptr<std::int32_t>();
  layout.lengths = workspace.take(DType::int32, {capacity}).ptr<std::int32_t>();
  for (const Port& port : ports) {
    if (!(given.*port.tensor)) continue;
    layout.leading[layout.tensors] = (given.*port.tensor).leading;
    layout.offsets[layout.tensors++] = workspace.take(DType::int64, {capacity + 1}).ptr<std::int64_t>();
  }
  return layout;
}

/// By their numbers in a graph.
std::unordered_map<std::int64_t, void*> pointers_of(const AttentionTensors& given, const DocumentLayout& layout) {
  std::unordered_map<std::int64_t, void*> pointers;
  int number = 0;
  for (const Port& port : ports) {
    if (!(given.*port.tensor)) continue;
    pointers[port.uid] = (given.*port.tensor).data;
    if (layout.capacity > 0) pointers[port.offsets()] = layout.offsets[number++];
  }
  if (layout.capacity > 0) pointers[lengths_uid] = layout.lengths;
  return pointers;
}

void copy_rows(cudaStream_t stream, const Tensor& to, const Tensor& from) {
  const auto pitch = [](const Tensor& x) { return static_cast<std::size_t>(x.leading * size_of(x.dtype)); };
  check_cuda(cudaMemcpy2DAsync(to.data, pitch(to), from.data, pitch(from),
                               static_cast<std::size_t>(to.cols() * size_of(to.dtype)),
                               static_cast<std::size_t>(to.rows()), cudaMemcpyDeviceToDevice, stream),
             "attention_backward");
}

/// What a backward pass reads that lies elsewhere for cuDNN.
void copy_inputs(cudaStream_t stream, const AttentionTensors& given, const AttentionTensors& t,
                 const AttentionShape& shape) {
  if (!t.starts) return pack_stats(stream, given.lse, t.lse, shape);
  transpose_stats(stream, given.lse, t.lse);
  copy_rows(stream, given.q, t.q);
}

/// What a call with document masks wrote elsewhere.
void copy_results(cudaStream_t stream, const AttentionTensors& t, const AttentionTensors& given, bool backward) {
  if (!backward) return transpose_stats(stream, t.lse, given.lse);
  copy_rows(stream, t.d_q, given.d_q);
  copy_rows(stream, t.d_k, given.d_k);
  copy_rows(stream, t.d_v, given.d_v);
}

}  // namespace

CudnnAttention::CudnnAttention(bool deterministic)
    : deterministic_(deterministic), graphs_(std::make_unique<AttentionGraphs>(deterministic)) {}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::run(bool backward, cudaStream_t stream, const AttentionTensors& t, const AttentionOptions& options,
                         Tensor workspace) {
  refusal_ = known_refusal(t, options);
  surprised_ = false;
  if (!refusal_.empty()) return false;
  Cursor cursor(workspace);
  const AttentionTensors given = take_tensors(cursor, backward, t, options.shape);
  const AttentionKey key(backward, given, options);
  const DocumentLayout layout = take_layout(cursor, key.documents, given);
  const AttentionGraphs::Built& built = graphs_->of(key, given);
  refusal_ = built.refusal;
  if (built.graph != nullptr && !(cursor.fits() && built.workspace <= cursor.rest().bytes())) {
    refusal_ = fmt::format("it needs {} bytes of workspace besides {}, the memory plan has {}", built.workspace,
                           workspace.bytes() - cursor.rest().bytes(), workspace.bytes());
  }
  surprised_ = !refusal_.empty();
  if (surprised_) return false;

  if (t.starts) lay_out_documents(stream, layout, t.starts, options.shape.sequence);
  if (backward) copy_inputs(stream, given, t, options.shape);
  std::unordered_map<std::int64_t, void*> pointers = pointers_of(given, layout);
  graphs_->run(built, stream, pointers, cursor.rest().data);
  if (t.starts) copy_results(stream, t, given, backward);
  return true;
}

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
/// sequence, as the workspace has room for. With document masks it keeps those of a full sequence for every document.
bool CudnnAttention::backward(cudaStream_t stream, const AttentionTensors& t, const AttentionOptions& options,
                              Tensor workspace) {
  if (!deterministic_) return run(true, stream, t, options, workspace);
  const AttentionShape& shape = options.shape;
  const bool masked = static_cast<bool>(t.starts);
  AttentionOptions slice = options;
  if (masked) slice.documents = std::min(options.documents - shape.batch + 1, shape.sequence);  // of one sequence
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::int64_t unit = attention_scores_bytes(shape) * (masked ? AttentionKey::capacity_for(slice.documents) : 1);
  const std::int64_t rest = attention_fixed_bytes(shape, DType::fp32) + (masked ? attention_documents_bytes(shape) : 0);
  const std::int64_t room = workspace.bytes() - rest;
  slice.shape.kv_heads = largest_divisor(shape.kv_heads, room / unit);
  slice.shape.heads = slice.shape.kv_heads * group;
  const bool whole = slice.shape.kv_heads == shape.kv_heads && !masked;
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
      const Tensor starts =
          masked ? t.starts.rows_at(begin * shape.sequence, slice.shape.batch * shape.sequence) : t.starts;
      const AttentionTensors part{queries(t.q), keys(t.k),      keys(t.v),   queries(t.out), lse,
                                  starts,       queries(t.d_q), keys(t.d_k), keys(t.d_v),    queries(t.d_out)};
      if (!run(true, stream, part, slice, workspace)) return false;
    }
  }
  return true;
}

}  // namespace llmtrain
