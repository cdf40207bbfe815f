// SPDX-License-Identifier: Apache-2.0
/// Placement of buffers: by turns at both ends of the ring's memory, else wherever there is room.
#include "llmtrain/memory/ring.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

/// Memory [begin, end) of a buffer.
struct Place {
  std::int64_t begin, end;
};

enum class Side { low, high };

/// A free place of `bytes` in [0, limit), nearest to that side.
std::optional<Place> find_place(std::vector<Place> taken, std::int64_t bytes, std::int64_t limit, Side side) {
  std::sort(taken.begin(), taken.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  taken.push_back({limit, limit});
  std::optional<Place> found;
  std::int64_t free = 0;
  for (const Place& next : taken) {
    if (next.begin - free >= bytes) {
      found = side == Side::low ? Place{free, free + bytes} : Place{next.begin - bytes, next.begin};
      if (side == Side::low) return found;
    }
    free = next.end;
  }
  return found;
}

/// Places all uses below `limit`, at one side or by turns at both; nothing if they do not fit.
std::optional<std::vector<Place>> place_all(std::span<const BufferUse> uses, std::int64_t limit, bool by_turns) {
  std::vector<Place> places;
  std::deque<std::size_t> live;
  Side side = Side::low;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    while (!live.empty() && uses[live.front()].end < uses[i].begin) live.pop_front();
    if (uses[i].bytes == 0) {
      places.push_back({0, 0});
      continue;
    }
    std::vector<Place> taken;
    for (const std::size_t other : live) taken.push_back(places[other]);
    const std::optional<Place> place = find_place(std::move(taken), uses[i].bytes, limit, side);
    if (!place) return std::nullopt;
    places.push_back(*place);
    live.push_back(i);
    if (by_turns) side = side == Side::low ? Side::high : Side::low;
  }
  return places;
}

}  // namespace

std::int64_t live_bytes(std::span<const BufferUse> uses) {
  std::int64_t most = 0, now = 0;
  std::size_t oldest = 0;
  for (const BufferUse& use : uses) {
    for (; uses[oldest].end < use.begin; ++oldest) now -= uses[oldest].bytes;
    now += use.bytes;
    most = std::max(most, now);
  }
  return most;
}

BufferRing plan_ring(std::span<const BufferUse> uses) {
  for (std::size_t i = 0; i < uses.size(); ++i) {
    LLMTRAIN_CHECK(uses[i].begin <= uses[i].end);
    LLMTRAIN_CHECK(i == 0 || (uses[i - 1].begin <= uses[i].begin && uses[i - 1].end <= uses[i].end));
  }
  const std::int64_t least = live_bytes(uses);
  std::optional<std::vector<Place>> places = place_all(uses, least, true);
  if (!places) places = place_all(uses, least, false);
  if (!places) places = place_all(uses, std::numeric_limits<std::int64_t>::max(), false);

  BufferRing ring;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const Place place = (*places)[i];
    const auto overlaps = [&](const Place& other) { return other.begin < place.end && place.begin < other.end; };
    int before = static_cast<int>(i) - 1;
    while (before >= 0 && !overlaps((*places)[static_cast<std::size_t>(before)])) --before;
    ring.offsets.push_back(place.begin);
    ring.before.push_back(before);
    ring.bytes = std::max(ring.bytes, place.end);
  }
  return ring;
}

}  // namespace llmtrain
