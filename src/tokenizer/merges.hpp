// SPDX-License-Identifier: Apache-2.0
/// Byte-pair merging: which neighbours become one token, and in which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "waiting_pairs.hpp"

namespace llmtrain {

/// `left` and `right` become `id`; smaller ranks first, and at equal rank the leftmost. Merges of one rank have one id.
struct Merge {
  std::int32_t left;
  std::int32_t right;
  std::uint32_t rank;
  std::int32_t id;
};

/// Finds the merge of a pair: a hash table that is never changed after it is made.
class MergeTable {
 public:
  static constexpr std::uint32_t no_rank = UINT32_MAX;
  struct Found {
    std::uint32_t rank = no_rank;
    std::int32_t id = -1;
  };

  /// Room for `merges` merges.
  explicit MergeTable(std::size_t merges);

  /// False if the pair is there already.
  bool add(const Merge& merge);

  Found find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      const Entry& entry = entries_[slot];
      if (entry.key == key) return entry.found;
      if (entry.key == no_key) return {};
    }
  }

 private:
  struct Entry {
    std::uint64_t key = no_key;
    Found found;
  };
  static constexpr std::uint64_t no_key = UINT64_MAX;
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const { return (key * 0x9E3779B97F4A7C15u >> shift_) & mask_; }

  std::vector<Entry> entries_;
  std::size_t mask_;
  int shift_;
};

/// Merges the symbols of words; keeps its buffers from word to word.
class Merger {
 public:
  /// Merges until no pair of neighbours has a merge, and leaves the rest in `symbols`. Time n^2 for short words, n log n
  /// for long ones.
  void merge(const MergeTable& table, std::vector<std::int32_t>& symbols);

 private:
  void merge_short(const MergeTable& table, std::vector<std::int32_t>& symbols);
  void merge_long(const MergeTable& table, std::vector<std::int32_t>& symbols);

  std::vector<MergeTable::Found> pairs_;  ///< of a short word: each symbol's with the next one
  // Of a long word. A symbol stands at the first of its places; its second and its last one hold their number, negative.
  // That is eight bytes a place, because what does not fit into a cache takes twice the time and more.
  std::vector<std::uint32_t> ranks_;  ///< of the pairs, where their first symbols stand
  WaitingPairs waiting_;
};

}  // namespace llmtrain
