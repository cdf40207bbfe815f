// SPDX-License-Identifier: Apache-2.0
/// MemoryPlan: every byte of a run, requested by name before anything is allocated.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/base/dtype.hpp"

namespace llmtrain {

/// What memory is for. Each segment is one allocation; `host` is pinned host memory, the rest device memory.
enum class Segment { params, master, moments, grads, activations, comm, scratch, host };
inline constexpr int segment_count = 8;

const char* name_of(Segment segment);

/// Alignment of every slot, in bytes.
inline constexpr std::int64_t memory_alignment = 256;

/// Bytes of a dense tensor, rounded up to memory_alignment. Error 78 when that exceeds 2^62.
std::int64_t aligned_bytes(DType dtype, std::span<const std::int64_t> shape);

/// Place in a plan; Arena turns it into a tensor.
struct Slot {
  int index = -1;
  explicit operator bool() const { return index >= 0; }
};

/// Requests in order; the same plan is printed by `llmtrain plan`, and allocated by Arena to the byte.
class MemoryPlan {
 public:
  struct Row {
    Segment segment;
    std::string name;
    DType dtype;
    std::vector<std::int64_t> shape;
    std::int64_t offset;  ///< in its segment
    std::int64_t bytes;   ///< with padding: the rows of a segment add up to bytes(segment)
  };

  /// Memory for a dense tensor of one to four extents; an extent may be 0.
  Slot request(Segment segment, std::string name, DType dtype, std::span<const std::int64_t> shape);
  Slot request(Segment segment, std::string name, DType dtype, std::initializer_list<std::int64_t> shape) {
    return request(segment, std::move(name), dtype, std::span(shape.begin(), shape.size()));
  }

  std::int64_t bytes(Segment segment) const { return bytes_[static_cast<std::size_t>(segment)]; }
  std::int64_t total() const;         ///< of all segments
  std::int64_t device_total() const;  ///< of all but host
  std::span<const Row> rows() const { return rows_; }
  const Row& row(Slot slot) const;

  std::string table() const;  ///< every row by segment, with sums
  /// The `count` largest rows of all, equal names of a segment added up.
  std::string largest(int count) const;

 private:
  std::vector<Row> rows_;
  std::int64_t bytes_[segment_count] = {};
};

}  // namespace llmtrain
