// SPDX-License-Identifier: Apache-2.0
/// Rings of buffers: nothing alive overlaps, nothing takes more than lives at once, and neighbours never wait.
#include "llmtrain/memory/ring.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>

using namespace llmtrain;

namespace {

/// Buffers of which each is asked for `ahead` places before its turn.
std::vector<BufferUse> chain(const std::vector<std::int64_t>& sizes, int ahead) {
  std::vector<BufferUse> uses;
  for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
    uses.push_back({sizes[static_cast<std::size_t>(i)] * 256, std::max(i - ahead, 0), i});
  }
  return uses;
}

std::int64_t most_at_once(const std::vector<BufferUse>& uses) {
  std::int64_t most = 0;
  for (const BufferUse& at : uses) {
    std::int64_t now = 0;
    for (const BufferUse& use : uses) now += use.begin <= at.begin && at.begin <= use.end ? use.bytes : 0;
    most = std::max(most, now);
  }
  return most;
}

/// Whether no two that live at once overlap, lives are as asked or shorter, and every `before` is the latest that shares
/// memory.
bool is_sound(const std::vector<BufferUse>& uses, const BufferRing& ring) {
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (ring.offsets[i] < 0 || ring.offsets[i] + uses[i].bytes > ring.bytes) return false;
    if (ring.begins[i] < uses[i].begin || ring.begins[i] > uses[i].end) return false;
    if (i > 0 && ring.begins[i] < ring.begins[i - 1]) return false;
    int before = -1;
    for (std::size_t j = 0; j < i; ++j) {
      const bool overlap =
          ring.offsets[i] < ring.offsets[j] + uses[j].bytes && ring.offsets[j] < ring.offsets[i] + uses[i].bytes;
      if (!overlap) continue;
      before = static_cast<int>(j);
      if (uses[j].end >= ring.begins[i]) return false;
    }
    if (ring.before[i] != before) return false;
  }
  return true;
}

std::int64_t waiting(const std::vector<BufferUse>& uses, const BufferRing& ring) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) count += ring.begins[i] > uses[i].begin;
  return count;
}

}  // namespace

TEST_CASE("of two that live at once, any sizes fit into the largest sum of neighbours") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> sizes(1 + random() % 20);
    for (std::int64_t& size : sizes) size = 1 + static_cast<std::int64_t>(random() % 9);
    std::int64_t pair = sizes[0];
    for (std::size_t i = 1; i < sizes.size(); ++i) pair = std::max(pair, sizes[i - 1] + sizes[i]);
    const std::vector<BufferUse> uses = chain(sizes, 1);
    const BufferRing ring = plan_ring(uses);
    CHECK(ring.bytes == 256 * pair);
    CHECK(is_sound(uses, ring));
    CHECK(waiting(uses, ring) == 0);
  }
}

TEST_CASE("buffers of one size take one place each and never wait") {
  for (const int ahead : {0, 1, 2, 5}) {
    const std::vector<BufferUse> uses = chain(std::vector<std::int64_t>(12, 2), ahead);
    const BufferRing ring = plan_ring(uses);
    CHECK(ring.bytes == 512 * (ahead + 1));
    CHECK(is_sound(uses, ring));
    CHECK(waiting(uses, ring) == 0);
  }
}

TEST_CASE("however far ahead a model's leases are asked for, each is there at least one before its turn") {
  for (const auto& [embedding, block, head] : {std::array<std::int64_t, 3>{17, 6, 18}, {40, 100, 41}, {100, 7, 101}}) {
    std::vector<std::int64_t> sizes;
    for (int micro_batch = 0; micro_batch < 5; ++micro_batch) {
      sizes.push_back(embedding);
      sizes.insert(sizes.end(), 6, block);
      sizes.push_back(head);
      sizes.insert(sizes.end(), 6, block);
    }
    for (const int ahead : {1, 2, 3, 4, 5, 8, 13, 20}) {
      CAPTURE(embedding);
      CAPTURE(ahead);
      const std::vector<BufferUse> uses = chain(sizes, ahead);
      const BufferRing ring = plan_ring(uses);
      CHECK(ring.bytes == most_at_once(uses));
      CHECK(is_sound(uses, ring));
      for (std::size_t i = 1; i < uses.size(); ++i) CHECK(ring.begins[i] < uses[i].end);
    }
  }
}

TEST_CASE("rings of any sizes and lives are sound") {
  std::mt19937_64 random(4);
  for (int round = 0; round < 300; ++round) {
    std::vector<BufferUse> uses(1 + random() % 30);
    int begin = 0, end = 0;
    for (BufferUse& use : uses) {
      begin += static_cast<int>(random() % 3);
      end = std::max(end + 1, begin + static_cast<int>(random() % 5));
      use = {static_cast<std::int64_t>(random() % 7) * 256, begin, end};
    }
    const BufferRing ring = plan_ring(uses);
    CHECK(ring.bytes == most_at_once(uses));
    CHECK(is_sound(uses, ring));
  }
}
