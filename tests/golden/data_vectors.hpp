// SPDX-License-Identifier: Apache-2.0
/// What the comparisons with megatron-core's golden files share.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <vector>

namespace llmtrain {

/// FNV-1a over whole numbers.
class NumberDigest {
 public:
  void add(std::int64_t number) { value_ = (value_ ^ static_cast<std::uint64_t>(number)) * 1099511628211U; }
  bool operator==(std::uint64_t expected) const { return value_ == expected; }

 private:
  std::uint64_t value_ = 14695981039346656037U;
};

inline std::vector<std::int64_t> numbers(const simdjson::dom::array& array) {
  std::vector<std::int64_t> values;
  for (const std::int64_t value : array) values.push_back(value);
  return values;
}

}  // namespace llmtrain
