// SPDX-License-Identifier: Apache-2.0
/// The hash table of pairs, and merging by search in short words and rank by rank in long ones.
#include "merges.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace llmtrain {
namespace {

constexpr std::size_t longest_short = 100;  // symbols

/// Places of pairs that wait to be merged, by rank. Pairs of one rank are merged from left to right, so that memory is
/// read in order; in a trained vocabulary the pairs that arise meanwhile have larger ranks.
class Waiting {
 public:
  bool empty() const { return buckets_.empty(); }
  std::uint32_t first_rank() const { return buckets_.begin()->first; }

  void add(const MergeTable::Found& merge, std::uint32_t place) {
    Bucket& bucket = buckets_[merge.rank];
    bucket.id = merge.id;
    bucket.sorted = bucket.sorted && (bucket.places.empty() || bucket.places.back() < place);
    bucket.places.push_back(place);
  }

  /// Calls `merge` with the places of the smallest rank from left to right, until a smaller rank waits.
  template <class Merge>
  void merge_first(Merge merge) {
    const std::uint32_t rank = first_rank();
    Bucket bucket = std::move(buckets_.extract(buckets_.begin()).mapped());
    if (!bucket.sorted)
      std::sort(bucket.places.begin() + static_cast<std::ptrdiff_t>(bucket.next), bucket.places.end());
    bucket.sorted = true;
    while (bucket.next < bucket.places.size()) {
      merge(MergeTable::Found{rank, bucket.id}, bucket.places[bucket.next++]);
      if (!empty() && first_rank() <= rank) return put_back(rank, std::move(bucket));
    }
  }

 private:
  struct Bucket {
    std::vector<std::uint32_t> places;
    std::size_t next = 0;  ///< places before are done
    std::int32_t id = -1;  ///< what the pairs become
    bool sorted = true;
  };

  void put_back(std::uint32_t rank, Bucket rest) {
    const MergeTable::Found merge{rank, rest.id};
    const auto [there, fresh] = buckets_.try_emplace(rank);
    std::swap(there->second, rest);
    for (std::size_t i = rest.next; i < rest.places.size(); ++i)
      add(merge, rest.places[i]);  // those that came meanwhile
  }

  std::map<std::uint32_t, Bucket> buckets_;
};

}  // namespace

MergeTable::MergeTable(std::size_t merges)
    : entries_(std::bit_ceil(std::max<std::size_t>(merges * 2, 16))),
      mask_(entries_.size() - 1),
      shift_(64 - std::countr_zero(entries_.size())) {}

bool MergeTable::add(const Merge& merge) {
  const std::uint64_t key = key_of(merge.left, merge.right);
  std::size_t slot = slot_of(key);
  while (entries_[slot].key != no_key && entries_[slot].key != key) slot = (slot + 1) & mask_;
  if (entries_[slot].key == key) return false;
  entries_[slot] = {key, {merge.rank, merge.id}};
  return true;
}

void Merger::merge(const MergeTable& table, std::vector<std::int32_t>& symbols) {
  if (symbols.size() < 2) return;
  symbols.size() <= longest_short ? merge_short(table, symbols) : merge_long(table, symbols);
}

void Merger::merge_short(const MergeTable& table, std::vector<std::int32_t>& symbols) {
  std::size_t size = symbols.size();
  pairs_.resize(size);
  for (std::size_t i = 0; i + 1 < size; ++i) pairs_[i] = table.find(symbols[i], symbols[i + 1]);
  pairs_.back() = {};
  while (size > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < size; ++i) best = pairs_[i].rank < pairs_[best].rank ? i : best;
    if (pairs_[best].rank == MergeTable::no_rank) break;
    symbols[best] = pairs_[best].id;
    --size;
    for (std::size_t i = best + 1; i < size; ++i) {
      symbols[i] = symbols[i + 1];
      pairs_[i] = pairs_[i + 1];
    }
    pairs_[size - 1] = {};
    if (best + 1 < size) pairs_[best] = table.find(symbols[best], symbols[best + 1]);
    if (best > 0) pairs_[best - 1] = table.find(symbols[best - 1], symbols[best]);
  }
  symbols.resize(size);
}

void Merger::merge_long(const MergeTable& table, std::vector<std::int32_t>& symbols) {
  const auto size = static_cast<std::uint32_t>(symbols.size());
  ranks_.resize(size);
  spans_.assign(size, 1);
  Waiting waiting;
  const auto pair_up = [&](std::uint32_t place) {
    const std::uint32_t next = place + spans_[place];
    const MergeTable::Found found = next == size ? MergeTable::Found{} : table.find(symbols[place], symbols[next]);
    ranks_[place] = found.rank;
    if (found.rank != MergeTable::no_rank) waiting.add(found, place);
  };
  for (std::uint32_t i = 0; i < size; ++i) pair_up(i);
  const auto merge_at = [&](const MergeTable::Found& found, std::uint32_t place) {
    if (ranks_[place] != found.rank) return;  // the pair was broken since
    const std::uint32_t eaten = place + spans_[place];
    const std::uint32_t end = eaten + spans_[eaten];
    symbols[place] = found.id;
    ranks_[eaten] = MergeTable::no_rank;
    spans_[place] = spans_[end - 1] = end - place;
    pair_up(place);
    if (place > 0) pair_up(place - spans_[place - 1]);
  };
  while (!waiting.empty()) waiting.merge_first(merge_at);
  std::size_t left = 0;
  for (std::uint32_t i = 0; i < size; i += spans_[i]) symbols[left++] = symbols[i];
  symbols.resize(left);
}

}  // namespace llmtrain
