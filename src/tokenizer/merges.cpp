// SPDX-License-Identifier: Apache-2.0
/// The hash table of pairs, and merging by search in short words and by a heap in long ones.
#include "merges.hpp"

#include <algorithm>
#include <bit>
#include <functional>

namespace llmtrain {
namespace {

constexpr std::size_t longest_short = 40;  // symbols
constexpr std::uint32_t nowhere = UINT32_MAX;

std::uint64_t heap_key(std::uint32_t rank, std::uint32_t place) { return std::uint64_t{rank} << 32 | place; }

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
  heap_.clear();
  for (std::uint32_t i = 0; i < size; ++i) {
    links_[i] = {i - 1, i + 1 < size ? i + 1 : nowhere};  // before the first: nowhere
    if (pairs_[i].rank != MergeTable::no_rank) heap_.push_back(heap_key(pairs_[i].rank, i));
  }
  const std::greater<> smallest_on_top;
  std::make_heap(heap_.begin(), heap_.end(), smallest_on_top);
  const auto pair_up = [&](std::uint32_t place) {
    const std::uint32_t next = links_[place].after;
    pairs_[place] = next == nowhere ? MergeTable::Found{} : table.find(symbols[place], symbols[next]);
    if (pairs_[place].rank == MergeTable::no_rank) return;
    heap_.push_back(heap_key(pairs_[place].rank, place));
    std::push_heap(heap_.begin(), heap_.end(), smallest_on_top);
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), smallest_on_top);
    const auto place = static_cast<std::uint32_t>(heap_.back());
    const auto rank = static_cast<std::uint32_t>(heap_.back() >> 32);
    heap_.pop_back();
    if (pairs_[place].rank != rank) continue;  // the pair was broken since
    const std::uint32_t eaten = links_[place].after;
    const std::uint32_t next = links_[eaten].after;
    symbols[place] = pairs_[place].id;
    pairs_[eaten] = {};
    links_[place].after = next;
    if (next != nowhere) links_[next].before = place;
    pair_up(place);
    if (links_[place].before != nowhere) pair_up(links_[place].before);
  }
  std::size_t left = 0;
  for (std::uint32_t i = 0; i != nowhere; i = links_[i].after) symbols[left++] = symbols[i];
  symbols.resize(left);
}

}  // namespace llmtrain
