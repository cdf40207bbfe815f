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
  int begin = 0;           ///< first step of its life, if there is room; never less than that of the use before it
  int end = 0;             ///< last one, greater than that of the use before it
};

/// Where the buffers lie.
struct BufferRing {
  std::vector<std::int64_t> offsets;  ///< by use
  std::vector<int> begins;            ///< by use: first step of its life, at the latest its last one
  std::vector<int> before;            ///< by use: the latest one before it in the same memory; -1: none
  std::int64_t bytes = 0;             ///< of the slot: the most that would live at one step
};

/// Buffers that live at one step never overlap. Where at most two do, all begin as asked; among more, gaps between
/// buffers of different sizes may let one wait.
BufferRing plan_ring(std::span<const BufferUse> uses);

}  // namespace llmtrain
