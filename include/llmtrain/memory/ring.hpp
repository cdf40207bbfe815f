// SPDX-License-Identifier: Apache-2.0
/// Buffers that come and go in an order known beforehand share one slot of memory, planned before it is allocated.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace llmtrain {

/// One buffer of a ring and when it lives, in steps that count what comes and goes.
struct BufferUse {
  std::int64_t bytes = 0;  ///< a multiple of memory_alignment
  int begin = 0;           ///< first step of its life
  int end = 0;             ///< last one; neither begin nor end ever decreases from one use to the next
};

/// Where the buffers lie.
struct BufferRing {
  std::vector<std::int64_t> offsets;  ///< by use
  std::vector<int> before;            ///< by use: the latest one before it in the same memory; -1: none
  std::int64_t bytes = 0;             ///< of the slot
};

/// The most bytes that live at one step: no plan takes less.
std::int64_t live_bytes(std::span<const BufferUse> uses);

/// Buffers that live at one step never overlap. Takes live_bytes() where at most two buffers live at once or all are of
/// one size; what different sizes leave unused between three or more comes on top.
BufferRing plan_ring(std::span<const BufferUse> uses);

}  // namespace llmtrain
