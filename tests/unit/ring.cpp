// SPDX-License-Identifier: Apache-2.0
/// Rings of buffers: nothing alive overlaps, and two neighbours, or buffers of one size, take no more than what lives.
#include "llmtrain/memory/ring.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using namespace llmtrain;

namespace {

/// Buffers of which each lives until the one `ahead` places on begins.
std::vector<BufferUse> chain(const std::vector<std::int64_t>& sizes, int ahead) {
  std::vector<BufferUse> uses;
  for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
    uses.push_back({sizes[static_cast<std::size_t>(i)], std::max(i - ahead, 0), i});
  }
  return uses;
}

/// Whether no two that live at once overlap, and every `before` is the latest that shares memory.
bool is_sound(const std::vector<BufferUse>& uses, const BufferRing& ring) {
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (ring.offsets[i] < 0 || ring.offsets[i] + uses[i].bytes > ring.bytes) return false;
    int before = -1;
    for (std::size_t j = 0; j < i; ++j) {
      const bool overlap =
          ring.offsets[i] < ring.offsets[j] + uses[j].bytes && ring.offsets[j] < ring.offsets[i] + uses[i].bytes;
      if (!overlap) continue;
      before = static_cast<int>(j);
      if (uses[j].end >= uses[i].begin) return false;
    }
    if (ring.before[i] != before) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("of two that live at once, any sizes fit into the largest sum of neighbours") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> sizes(1 + random() % 20);
    for (std::int64_t& size : sizes) size = static_cast<std::int64_t>(random() % 9) * 256;
    const std::vector<BufferUse> uses = chain(sizes, 1);
    std::int64_t pair = sizes[0];
    for (std::size_t i = 1; i < sizes.size(); ++i) pair = std::max(pair, sizes[i - 1] + sizes[i]);
    CHECK(live_bytes(uses) == pair);
    const BufferRing ring = plan_ring(uses);
    CHECK(ring.bytes == pair);
    CHECK(is_sound(uses, ring));
  }
}

TEST_CASE("buffers of one size take one place each") {
  for (const int ahead : {0, 1, 2, 5}) {
    const std::vector<BufferUse> uses = chain(std::vector<std::int64_t>(12, 512), ahead);
    const BufferRing ring = plan_ring(uses);
    CHECK(ring.bytes == 512 * (ahead + 1));
    CHECK(is_sound(uses, ring));
  }
}

TEST_CASE("deeper rings of any sizes are sound") {
  std::mt19937_64 random(4);
  for (int round = 0; round < 300; ++round) {
    std::vector<BufferUse> uses(1 + random() % 30);
    int begin = 0, end = 0;
    for (BufferUse& use : uses) {
      begin += static_cast<int>(random() % 3);
      end = std::max(end, begin + static_cast<int>(random() % 5));
      use = {static_cast<std::int64_t>(random() % 7) * 256, begin, end};
    }
    const BufferRing ring = plan_ring(uses);
    CHECK(ring.bytes >= live_bytes(uses));
    CHECK(is_sound(uses, ring));
  }
}
