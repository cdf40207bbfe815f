// SPDX-License-Identifier: Apache-2.0
/// Sizes of temporary memory, by device kind.
#include "llmtrain/backend/workspace.hpp"

#include <algorithm>

namespace llmtrain {

namespace {
/// Row blocks whose partial weight gradients are kept and then added in order: enough for every thread or
/// multiprocessor (two blocks on each of 132), and fixed, so that results do not depend on their number.
constexpr std::int64_t cpu_norm_blocks = 64;
constexpr std::int64_t cuda_norm_blocks = 264;
/// Staging of one CPU communicator that is aimed at: parts received from all ranks and not yet added.
constexpr std::int64_t cpu_staging_bytes = 16 << 20;
/// cuBLASLt splits long sums over blocks that meet in its workspace; NVIDIA advises 32 MiB on Hopper.
constexpr std::int64_t cuda_library_bytes = std::int64_t{64} << 20;
/// What cuDNN's backward engines keep besides the tensors counted below.
constexpr std::int64_t engine_bytes = std::int64_t{16} << 20;
/// Beyond this, attention gives up its repeatable algorithm rather than keep all gradients of a head's scores.
constexpr std::int64_t largest_scores_bytes = std::int64_t{1} << 30;
}  // namespace

std::int64_t norm_backward_workspace(DeviceKind kind, std::int64_t rows, std::int64_t cols, DType stats) {
  return std::min(rows, kind == DeviceKind::cpu ? cpu_norm_blocks : cuda_norm_blocks) * cols * size_of(stats);
}

std::int64_t layer_norm_backward_workspace(DeviceKind kind, std::int64_t rows, std::int64_t cols, DType stats) {
  return 2 * norm_backward_workspace(kind, rows, cols, stats);
}

std::int64_t kernels_workspace(DeviceKind kind) {
  return kind == DeviceKind::cpu ? 0 : cuda_library_bytes + cuda_partial_sums_bytes;
}

namespace {

/// Rows of a head and token.
std::int64_t attention_rows(const AttentionShape& shape) { return shape.heads * shape.batch * shape.sequence; }

std::int64_t round_up(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

std::int64_t attention_scores_bytes(const AttentionShape& shape) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  return group * round_up(shape.sequence, 64) * round_up(shape.sequence, 128) * size_of(DType::bf16);
}

std::int64_t attention_fixed_bytes(const AttentionShape& shape, DType stats) {
  return 3 * attention_rows(shape) * size_of(stats) + engine_bytes;  // lse, d_out * out, and cuDNN's copy of that
}

std::int64_t attention_documents_bytes(const AttentionShape& shape) {
  constexpr std::int64_t offsets = 9, slack = 16 * 256;  // tensors of a call, and the rounding of all their places
  const std::int64_t tokens = shape.batch * shape.sequence;
  const std::int64_t documents = std::min(2 * tokens + 32, cuda_most_documents) + 1;  // a power of two, 8 or more
  const std::int64_t a_document = offsets * size_of(DType::int64) + 2 * size_of(DType::int32);
  return documents * a_document + 2 * tokens * (shape.heads + shape.kv_heads) * shape.head_dim * size_of(DType::bf16) +
         slack;  // q, d_q, d_k and d_v
}

std::int64_t attention_backward_workspace(DeviceKind kind, const AttentionShape& shape, DType stats, bool masked) {
  if (kind == DeviceKind::cpu || stats == DType::fp64) return attention_rows(shape) * size_of(stats);  // d_out * out
  // cuDNN adds up d_q in fp32 and, for grouped heads, keeps d_k and d_v of every query head first.
  const std::int64_t by_head = shape.kv_heads < shape.heads ? 2 : 0;
  const std::int64_t sums = (1 + by_head) * attention_rows(shape) * shape.head_dim * size_of(DType::fp32);
  const std::int64_t scores = std::min(attention_scores_bytes(shape), largest_scores_bytes);
  return attention_fixed_bytes(shape, stats) + std::max(sums, scores) + (masked ? attention_documents_bytes(shape) : 0);
}

std::int64_t communicator_workspace(DeviceKind kind, int size, std::int64_t largest) {
  if (kind == DeviceKind::cuda || size == 1) return 0;
  // A round of a reduction holds one part from every other rank; parts below 64 KiB would make many small messages,
  // above 1 MiB they only cost memory.
  const std::int64_t others = size - 1;
  const std::int64_t part = std::clamp<std::int64_t>(cpu_staging_bytes / others, 64 << 10, 1 << 20);
  return others * std::min(part, std::max<std::int64_t>(largest, 64));
}

std::int64_t channel_workspace(DeviceKind kind, std::int64_t message, bool receives, bool on_one_node) {
  if (kind == DeviceKind::cpu) return communicator_workspace(kind, 2, 0);  // nothing is reduced
  return receives && on_one_node ? message : 0;
}

}  // namespace llmtrain
