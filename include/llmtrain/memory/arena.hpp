// SPDX-License-Identifier: Apache-2.0
/// Arena: the allocated memory of a plan.
#pragma once

#include <string>

#include "llmtrain/backend/device.hpp"
#include "llmtrain/memory/plan.hpp"

namespace llmtrain {

/// One zeroed allocation a segment, released with the arena. Nothing else allocates device memory.
class Arena {
 public:
  /// Error 82 when the device has not enough: names the segment, the plan's largest lines and the deck keys that help.
  /// `plan` is copied; slots requested later are not in this arena.
  Arena(Device& device, const MemoryPlan& plan);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Tensor operator[](Slot slot) const;   ///< dense, of the requested dtype and shape
  Tensor whole(Segment segment) const;  ///< all of a segment, as uint8
  const MemoryPlan& plan() const { return plan_; }
  /// What stands at an address, for messages: "params layers.0.qkv + 256 B".
  std::string at(const void* address) const;

 private:
  void release();

  Device& device_;
  MemoryPlan plan_;
  void* memory_[segment_count] = {};
};

}  // namespace llmtrain
