// SPDX-License-Identifier: Apache-2.0
/// The hash table of pairs, and merging by search in short words and rank by rank in long ones.
#include "merges.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace llmtrain {
namespace {

constexpr std::size_t longest_short = 100;  // symbols
constexpr std::uint32_t nowhere = UINT32_MAX;

/// Places of pairs that wait to be merged, by rank. Pairs of one rank are merged from left to right, so that memory is
/// read in order; in a trained vocabulary the pairs that arise meanwhile have larger ranks.
class Waiting {
 public:
  bool empty() const { return buckets_.empty(); }
  std::uint32_t first_rank() const { return buckets_.begin()->first; }

  void add(std::uint32_t rank, std::uint32_t place) {
    Bucket& bucket = buckets_[rank];
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
      merge(rank, bucket.places[bucket.next++]);
      if (!empty() && first_rank() <= rank) return put_back(rank, std::move(bucket));
    }
  }

 private:
  struct Bucket {
    std::vector<std::uint32_t> places;
    std::size_t next = 0;  ///< places before are done
    bool sorted = true;
  };

  void put_back(std::uint32_t rank, Bucket rest) {
    const auto [there, fresh] = buckets_.try_emplace(rank);
    std::swap(there->second, rest);
    for (std::size_t i = rest.next; i < rest.places.size(); ++i)
      add(rank, rest.places[i]);  // those that came meanwhile
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
  pairs_.resize(symbols.size());
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) pairs_[i] = table.find(symbols[i], symbols[i + 1]);
  pairs_.back() = {};
  symbols.size() <= longest_short ? merge_short(table, symbols) : merge_long(table, symbols);
}

void Merger::merge_short(const MergeTable& table, std::vector<std::int32_t>& symbols) {
  std::size_t size = symbols.size();
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
  links_.resize(size);
  Waiting waiting;
  for (std::uint32_t i = 0; i < size; ++i) {
    links_[i] = {i - 1, i + 1 < size ? i + 1 : nowhere};  // before the first: nowhere
    if (pairs_[i].rank != MergeTable::no_rank) waiting.add(pairs_[i].rank, i);
  }
  const auto pair_up = [&](std::uint32_t place) {
    const std::uint32_t next = links_[place].after;
    pairs_[place] = next == nowhere ? MergeTable::Found{} : table.find(symbols[place], symbols[next]);
    if (pairs_[place].rank != MergeTable::no_rank) waiting.add(pairs_[place].rank, place);
  };
  const auto merge_at = [&](std::uint32_t rank, std::uint32_t place) {
    if (pairs_[place].rank != rank) return;  // the pair was broken since
    const std::uint32_t eaten = links_[place].after;
    const std::uint32_t next = links_[eaten].after;
    symbols[place] = pairs_[place].id;
    pairs_[eaten] = {};
    links_[place].after = next;
    if (next != nowhere) links_[next].before = place;
    pair_up(place);
    if (links_[place].before != nowhere) pair_up(links_[place].before);
  };
  while (!waiting.empty()) waiting.merge_first(merge_at);
  std::size_t left = 0;
  for (std::uint32_t i = 0; i != nowhere; i = links_[i].after) symbols[left++] = symbols[i];
  symbols.resize(left);
}

}  // namespace llmtrain
