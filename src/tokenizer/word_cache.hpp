// SPDX-License-Identifier: Apache-2.0
/// Remembers the ids of short words.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace llmtrain {

/// A table that holds one word a slot and forgets it for the next one; each entry is one cache line.
class WordCache {
 public:
  static constexpr std::size_t longest = 32;  ///< bytes of a word
  static constexpr std::size_t most_ids = 7;

  using Key = std::array<std::uint64_t, longest / 8>;

  struct alignas(64) Entry {
    Key key{};
    std::uint8_t bytes = 0;  ///< 0: empty
    std::uint8_t count = 0;
    std::array<std::int32_t, most_ids> ids;
  };

  /// The word's bytes and zeros behind. `end`: where the text around the word ends, so that its bytes may be read at once.
  static Key key_of(std::string_view word, const char* end) {
    Key key{};
    if (end - word.data() >= static_cast<std::ptrdiff_t>(longest)) {
      std::memcpy(key.data(), word.data(), longest);
      for (std::size_t i = 0; i < key.size(); ++i) key[i] &= masks[word.size()][i];
    } else {
      std::memcpy(key.data(), word.data(), word.size());
    }
    return key;
  }

  /// The only entry that can hold the word; it does if `holds`.
  Entry& entry(const Key& key) {
    const std::uint64_t hash =
        ((key[0] ^ rotate(key[2])) * 0x9E3779B97F4A7C15u) ^ ((key[1] ^ rotate(key[3])) * 0xC2B2AE3D27D4EB4Fu);
    return entries_[(hash ^ hash >> 29) * 0x9E3779B97F4A7C15u >> (64 - log_slots)];
  }
  static bool holds(const Entry& entry, const Key& key, std::size_t bytes) {
    std::uint64_t other = entry.bytes ^ bytes;
    for (std::size_t i = 0; i < key.size(); ++i) other |= entry.key[i] ^ key[i];  // faster than a call of memcmp
    return other == 0;
  }
  static void put(Entry& entry, const Key& key, std::size_t bytes, std::span<const std::int32_t> ids) {
    entry.key = key;
    entry.bytes = static_cast<std::uint8_t>(bytes);
    entry.count = static_cast<std::uint8_t>(ids.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  static constexpr int log_slots = 16;  // 4 MiB: merging what was forgotten takes longer than a look outside L2
  static constexpr std::uint64_t rotate(std::uint64_t x) { return x << 31 | x >> 33; }
  static constexpr std::array<Key, longest + 1> make_masks() {
    std::array<Key, longest + 1> masks{};
    for (std::size_t bytes = 0; bytes <= longest; ++bytes) {
      for (std::size_t i = 0; i < bytes; ++i) masks[bytes][i / 8] |= std::uint64_t{255} << (i % 8 * 8);
    }
    return masks;
  }
  static const std::array<Key, longest + 1> masks;  ///< little-endian

  std::vector<Entry> entries_ = std::vector<Entry>(std::size_t{1} << log_slots);
};

inline constexpr std::array<WordCache::Key, WordCache::longest + 1> WordCache::masks = WordCache::make_masks();

}  // namespace llmtrain
