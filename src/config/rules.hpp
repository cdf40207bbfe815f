// SPDX-License-Identifier: Apache-2.0
/// How rules between keys report: place, message, nearest valid choices.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "llmtrain/config/findings.hpp"

namespace llmtrain {

class Rules {
 public:
  Rules(const DeckOrigin& origin, Findings& findings) : origin_(origin), findings_(findings) {}

  /// Reports the message unless `holds`; silent if one of `keys` could not be read, for then it holds a default.
  template <class... Args>
  void rule(bool holds, std::initializer_list<std::string_view> keys, fmt::format_string<Args...> format,
            Args&&... args) {
    if (holds || origin_.any_broken(keys)) return;
    findings_.add(origin_.place(keys) + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const DeckOrigin& origin_;
  Findings& findings_;
};

/// The multiples of `divisor` next to `value`: "248 or 256".
std::string nearest_multiples(std::int64_t value, std::int64_t divisor);

/// The divisors of `value` next to `wanted`: "4 or 8".
std::string nearest_divisors(std::int64_t value, std::int64_t wanted);

}  // namespace llmtrain
