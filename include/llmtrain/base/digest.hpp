// SPDX-License-Identifier: Apache-2.0
/// XXH3-128 digests, in the hexadecimal form that `xxhsum -H2` prints.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace llmtrain {

/// Digest of a stream of bytes.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void add(const void* data, std::size_t bytes);
  std::string hex() const;  ///< of all bytes so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string digest_of(const void* data, std::size_t bytes);
inline std::string digest_of(std::string_view text) { return digest_of(text.data(), text.size()); }

}  // namespace llmtrain
