// SPDX-License-Identifier: Apache-2.0
/// The numbers that golden tests and the programs which write their files both make.
#pragma once

#include <cstdint>

namespace llmtrain {

/// Knuth's MMIX generator, numbers of 31 bits.
class Lcg {
 public:
  explicit Lcg(std::uint64_t seed) : state_(seed) {}
  std::int64_t next() {
    state_ = 6364136223846793005u * state_ + 1442695040888963407u;
    return static_cast<std::int64_t>(state_ >> 33);
  }

 private:
  std::uint64_t state_;
};

}  // namespace llmtrain
