// SPDX-License-Identifier: Apache-2.0
/// The pairs of a long word that wait to be merged.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace llmtrain {

/// Places of pairs, by rank. Pairs of one rank are merged from left to right, so that memory is read in order; in a
/// trained vocabulary the pairs that arise meanwhile have larger ranks. Keeps its memory for the next word: what is given
/// back to the system costs more to get again than the merging.
class WaitingPairs {
 public:
  bool empty() const { return buckets_.empty(); }

  void clear() {
    while (!empty()) retire(buckets_.extract(buckets_.begin()));
  }

  /// The pair at `place` becomes `id`. All of one rank become the same.
  void add(std::uint32_t rank, std::int32_t id, std::uint32_t place) {
    Bucket& bucket = bucket_of(rank);
    bucket.id = id;
    bucket.sorted = bucket.sorted && (bucket.places.empty() || bucket.places.back() < place);
    bucket.places.push_back(place);
  }

  /// Calls `merge` with rank, id and place of those of the smallest rank from left to right, until a smaller rank waits.
  template <class Merge>
  void merge_first(Merge merge) {
    auto node = buckets_.extract(buckets_.begin());
    const std::uint32_t rank = node.key();
    Bucket& bucket = node.mapped();
    if (!bucket.sorted)
      std::sort(bucket.places.begin() + static_cast<std::ptrdiff_t>(bucket.next), bucket.places.end());
    bucket.sorted = true;
    while (bucket.next < bucket.places.size()) {
      merge(rank, bucket.id, bucket.places[bucket.next++]);
      if (!empty() && buckets_.begin()->first <= rank) {
        put_back(rank, bucket);
        break;
      }
    }
    retire(std::move(node));
  }

 private:
  struct Bucket {
    std::vector<std::uint32_t> places;
    std::size_t next = 0;  ///< places before are done
    std::int32_t id = -1;
    bool sorted = true;
  };
  using Buckets = std::map<std::uint32_t, Bucket>;

  Bucket& bucket_of(std::uint32_t rank) {
    const auto there = buckets_.lower_bound(rank);
    if (there != buckets_.end() && there->first == rank) return there->second;
    if (spare_.empty()) return buckets_.emplace_hint(there, rank, Bucket{})->second;
    auto node = std::move(spare_.back());
    spare_.pop_back();
    node.key() = rank;
    return buckets_.insert(there, std::move(node))->second;
  }

  /// Puts what is left of `rest` before those of its rank that came meanwhile.
  void put_back(std::uint32_t rank, Bucket& rest) {
    Bucket& bucket = bucket_of(rank);
    bucket.id = rest.id;
    std::swap(bucket, rest);
    for (std::size_t i = rest.next; i < rest.places.size(); ++i) add(rank, rest.id, rest.places[i]);
  }

  void retire(Buckets::node_type node) {
    Bucket& bucket = node.mapped();
    bucket.places.clear();
    bucket.next = 0;
    bucket.sorted = true;
    spare_.push_back(std::move(node));
  }

  Buckets buckets_;
  std::vector<Buckets::node_type> spare_;
};

}  // namespace llmtrain
