// SPDX-License-Identifier: Apache-2.0
/// Collectives of one lease, sent off in batches of at most so many elements.
#pragma once

#include <cstdint>

#include "llmtrain/backend/communicator.hpp"

namespace llmtrain {

/// A collective larger than the bucket goes alone; an all-reduce is cut.
class BucketBatch {
 public:
  BucketBatch(Communicator& communicator, Event ready, std::int64_t bucket)
      : batch_(communicator, ready), bucket_(bucket), arrival_(ready) {}

  void reduce_scatter(Tensor destination, Tensor source) {
    make_room(source.numel()).reduce_scatter(destination, source);
  }
  void shift(Tensor destination, Tensor source, int distance) {
    make_room(source.numel()).shift(destination, source, distance);
  }
  void all_gather(Tensor destination, Tensor source) { make_room(destination.numel()).all_gather(destination, source); }
  void all_reduce(Tensor flat) {
    for (std::int64_t begin = 0, count = 0; begin < flat.numel(); begin += count) {
      if (held_ == bucket_) flush();
      count = std::min(bucket_ - held_, flat.numel() - begin);
      make_room(count).all_reduce(flat.flat(begin, count));
    }
  }
  /// Sends the rest; the event of all of them, for a communicator completes its batches in order.
  Event submit() {
    flush();
    return arrival_;
  }

 private:
  Communicator::Batch& make_room(std::int64_t elements) {
    if (held_ > 0 && held_ + elements > bucket_) flush();
    held_ += elements;
    return batch_;
  }
  void flush() {
    if (held_ > 0) arrival_ = batch_.submit();
    held_ = 0;
  }

  Communicator::Batch batch_;
  std::int64_t bucket_;
  std::int64_t held_ = 0;  ///< elements collected
  Event arrival_;
};

}  // namespace llmtrain
