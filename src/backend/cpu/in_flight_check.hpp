// SPDX-License-Identifier: Apache-2.0
/// InFlightCheck: makes misuse of tensors in flight visible, for debug builds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "llmtrain/backend/communicator.hpp"

namespace llmtrain {

/// Whether two dense tensors share a byte.
bool memory_overlaps(const Tensor& a, const Tensor& b);

/// Guards one batch: results land in memory of its own and reach their destinations in deliver(). Until then the
/// destinations hold bytes 0xff (NaN, or -1), but for this rank's part where source and destination are in place; sources
/// are compared with a checksum of the start.
class InFlightCheck {
 public:
  /// Redirects destinations of `ops`, which must not move while the batch runs.
  InFlightCheck(const Group& group, std::uint64_t sequence, std::vector<Communicator::Op>& ops);

  std::uint64_t sequence() const { return sequence_; }
  bool touches(std::span<const Communicator::Op> ops) const;

  /// Throws Error(internal) naming the operation if a source or a destination was written in flight; else copies the
  /// results to their destinations.
  void deliver();

 private:
  struct Guard {
    Communicator::Op op;           ///< as issued
    std::uint64_t source_sum = 0;  ///< of sources that must not change
    bool has_source = false;
    std::vector<std::byte> result;  ///< lands here
    std::int64_t kept_begin = 0;    ///< bytes of the destination that keep their contents: [kept_begin, kept_end)
    std::int64_t kept_end = 0;
  };
  void guard(Guard& guard, Communicator::Op& op) const;

  const Group& group_;
  std::uint64_t sequence_;
  std::vector<Guard> guards_;
};

}  // namespace llmtrain
