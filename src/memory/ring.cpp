// SPDX-License-Identifier: Apache-2.0
/// Placement of buffers by turns at the low and the high end of the memory.
#include "llmtrain/memory/ring.hpp"

#include <algorithm>
#include <optional>

#include "llmtrain/base/error.hpp"
#include "llmtrain/memory/plan.hpp"

namespace llmtrain {

namespace {

/// Memory [begin, end) of a buffer.
struct Place {
  std::int64_t begin, end;
};

enum class End { low, high };

/// A place of `bytes` in [0, limit) beside the `taken` ones, nearest to that end.
std::optional<Place> find_place(std::vector<Place> taken, std::int64_t bytes, std::int64_t limit, End near) {
  std::sort(taken.begin(), taken.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  taken.push_back({limit, limit});
  std::optional<Place> found;
  std::int64_t free = 0;
  for (const Place& next : taken) {
    if (next.begin - free >= bytes) {
      if (near == End::low) return Place{free, free + bytes};
      found = Place{next.begin - bytes, next.begin};
    }
    free = next.end;
  }
  return found;
}

/// The most bytes that live at one step if all begin as asked.
std::int64_t most_bytes(std::span<const BufferUse> uses) {
  std::int64_t most = 0, now = 0;
  std::size_t oldest = 0;
  for (const BufferUse& use : uses) {
    for (; uses[oldest].end < use.begin; ++oldest) now -= uses[oldest].bytes;
    now += use.bytes;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace

BufferRing plan_ring(std::span<const BufferUse> uses) {
  BufferRing ring;
  ring.bytes = most_bytes(uses);
  std::vector<Place> places;
  End near = End::low;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const BufferUse& use = uses[i];
    LLMTRAIN_CHECK(use.begin <= use.end && use.bytes % memory_alignment == 0);
    LLMTRAIN_CHECK(i == 0 || (uses[i - 1].begin <= use.begin && uses[i - 1].end < use.end));
    std::optional<Place> place;
    int step = i == 0 ? use.begin : std::max(use.begin, ring.begins.back());
    for (; !place; ++step) {  // at its last step it is alone
      std::vector<Place> taken;
      for (std::size_t j = i; j > 0 && uses[j - 1].end >= step; --j) {
        if (uses[j - 1].bytes > 0) taken.push_back(places[j - 1]);
      }
      place = find_place(std::move(taken), use.bytes, ring.bytes, near);
    }
    const auto overlaps = [&](const Place& other) { return other.begin < place->end && place->begin < other.end; };
    int before = use.bytes == 0 ? -1 : static_cast<int>(i) - 1;  // nothing is overwritten by nothing
    while (before >= 0 && !overlaps(places[static_cast<std::size_t>(before)])) --before;
    places.push_back(*place);
    ring.offsets.push_back(place->begin);
    ring.begins.push_back(step - 1);
    ring.before.push_back(before);
    if (use.bytes > 0) near = near == End::low ? End::high : End::low;
  }
  return ring;
}

}  // namespace llmtrain
