// SPDX-License-Identifier: Apache-2.0
/// Mistakes found in a deck, collected so that all are reported at once, and where each key was written.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace llmtrain {

/// Where the keys of a deck came from.
struct DeckOrigin {
  std::string name = "deck";                               ///< the deck's file name
  std::map<std::string, std::string, std::less<>> places;  ///< key -> "deck.yaml:12:5" or "command line: run.steps=5"
  std::set<std::string, std::less<>> broken;               ///< keys whose value could not be read

  /// Place of the first of `keys` that was written anywhere; the deck's name if all are defaults.
  std::string place(std::initializer_list<std::string_view> keys) const;
  bool any_broken(std::initializer_list<std::string_view> keys) const;
};

/// Error lines, in the order found; a line is never reported twice, and after 100 lines the rest is only counted.
class Findings {
 public:
  static constexpr std::size_t most = 100;

  void add(std::string line);
  bool full() const { return lines_.size() >= most; }
  bool empty() const { return lines_.empty(); }
  const std::vector<std::string>& lines() const { return lines_; }
  /// Throws Error(configuration) whose message is all lines, if there is any.
  void throw_if_any() const;

 private:
  std::vector<std::string> lines_;
  std::size_t more_ = 0;
};

}  // namespace llmtrain
