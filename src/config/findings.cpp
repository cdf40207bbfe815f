// SPDX-License-Identifier: Apache-2.0
/// Collected deck errors and the places of keys.
#include "llmtrain/config/findings.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

std::string DeckOrigin::place(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys) {
    if (const auto found = places.find(key); found != places.end()) return found->second;
  }
  return name;
}

bool DeckOrigin::any_broken(std::initializer_list<std::string_view> keys) const {
  return std::any_of(keys.begin(), keys.end(), [this](std::string_view key) { return broken.contains(key); });
}

void Findings::add(std::string line) {
  if (std::find(lines_.begin(), lines_.end(), line) != lines_.end()) return;
  if (full()) {
    ++more_;
  } else {
    lines_.push_back(std::move(line));
  }
}

void Findings::throw_if_any() const {
  if (lines_.empty()) return;
  std::string message = fmt::format("{}", fmt::join(lines_, "\n"));
  if (more_ > 0) message += fmt::format("\n... and {} more errors", more_);
  throw Error(ExitCode::configuration, message);
}

}  // namespace llmtrain
