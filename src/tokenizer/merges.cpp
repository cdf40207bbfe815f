// SPDX-License-Identifier: Apache-2.0
/// The hash table of pairs, and merging by search in short words and rank by rank in long ones.
#include "merges.hpp"

#include <algorithm>
#include <bit>

namespace llmtrain {
namespace {

constexpr std::size_t longest_short = 100;  // symbols

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
  const auto places = [&](std::uint32_t beside) {  // of the symbol that has this place as its second or last one
    return beside < size && symbols[beside] < 0 ? static_cast<std::uint32_t>(-symbols[beside]) : 1;
  };
  const auto end_of = [&](std::uint32_t place) { return place + places(place + 1); };
  const auto pair_up = [&](std::uint32_t place) {
    const std::uint32_t next = end_of(place);
    const MergeTable::Found found = next == size ? MergeTable::Found{} : table.find(symbols[place], symbols[next]);
    ranks_[place] = found.rank;
    if (found.rank != MergeTable::no_rank) waiting_.add(found.rank, found.id, place);
  };
  for (std::uint32_t i = 0; i < size; ++i) pair_up(i);
  const auto merge_at = [&](std::uint32_t rank, std::int32_t id, std::uint32_t place) {
    if (ranks_[place] != rank) return;  // the pair was broken since
    const std::uint32_t eaten = end_of(place);
    const std::uint32_t end = end_of(eaten);
    symbols[place] = id;
    symbols[place + 1] = symbols[end - 1] = -static_cast<std::int32_t>(end - place);
    ranks_[eaten] = MergeTable::no_rank;
    pair_up(place);
    if (place > 0) pair_up(place - places(place - 1));
  };
  while (!waiting_.empty()) waiting_.merge_first(merge_at);
  std::size_t left = 0;
  for (std::uint32_t i = 0, next; i < size; i = next) {
    next = end_of(i);
    symbols[left++] = symbols[i];
  }
  symbols.resize(left);
}

}  // namespace llmtrain
