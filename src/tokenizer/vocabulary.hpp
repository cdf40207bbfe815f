// SPDX-License-Identifier: Apache-2.0
/// Tokens by id, and ids by bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llmtrain {

/// A vocabulary: each id has at most one token, a token is a string of bytes. Ids without one are holes.
class Vocabulary {
 public:
  static constexpr std::int32_t none = -1;
  static constexpr std::int64_t largest_id = (std::int64_t{1} << 22) - 1;

  /// Gives `id` its bytes. `findable`: id_of finds it. False if the id is taken, or the bytes are and it is findable.
  bool add(std::int32_t id, std::string_view bytes, bool findable);

  std::int32_t id_of(std::string_view bytes) const;
  std::string_view bytes_of(std::int32_t id) const {
    return std::string_view(bytes_).substr(place(id).begin, place(id).size);
  }
  bool holds(std::int64_t id) const { return id >= 0 && id < size() && place(static_cast<std::int32_t>(id)).used; }

  std::int64_t size() const { return static_cast<std::int64_t>(places_.size()); }  ///< the largest id + 1
  std::int64_t tokens() const { return tokens_; }
  std::int64_t holes() const { return size() - tokens_; }

 private:
  struct Place {
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
    bool used = false;
  };
  const Place& place(std::int32_t id) const { return places_[static_cast<std::size_t>(id)]; }
  std::size_t slot_of(std::string_view bytes) const;
  void grow();

  std::string bytes_;
  std::vector<Place> places_;
  std::vector<std::int32_t> slots_;  ///< open addressing: ids, or none
  std::size_t findable_ = 0;
  std::int64_t tokens_ = 0;
};

}  // namespace llmtrain
