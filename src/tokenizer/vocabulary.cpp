// SPDX-License-Identifier: Apache-2.0
/// A pool of bytes and a hash table of ids into it.
#include "vocabulary.hpp"

#include <functional>

namespace llmtrain {

std::size_t Vocabulary::slot_of(std::string_view bytes) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = std::hash<std::string_view>{}(bytes)&mask;
  while (slots_[slot] != none && bytes_of(slots_[slot]) != bytes) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::grow() {
  std::vector<std::int32_t> before(slots_.empty() ? 1024 : slots_.size() * 2, none);
  before.swap(slots_);
  for (const std::int32_t id : before) {
    if (id != none) slots_[slot_of(bytes_of(id))] = id;
  }
}

bool Vocabulary::add(std::int32_t id, std::string_view bytes, bool findable) {
  if (holds(id)) return false;
  if (findable) {
    if ((findable_ + 1) * 2 > slots_.size()) grow();
    const std::size_t slot = slot_of(bytes);
    if (slots_[slot] != none) return false;
    slots_[slot] = id;
    ++findable_;
  }
  const auto index = static_cast<std::size_t>(id);
  if (index >= places_.size()) places_.resize(index + 1);
  places_[index] = {static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(bytes.size()), true};
  bytes_ += bytes;
  ++tokens_;
  return true;
}

std::int32_t Vocabulary::id_of(std::string_view bytes) const { return slots_.empty() ? none : slots_[slot_of(bytes)]; }

}  // namespace llmtrain
