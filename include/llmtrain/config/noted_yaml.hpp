// SPDX-License-Identifier: Apache-2.0
/// Some keys of a deck as YAML text, each with a comment of its own.
#pragma once

#include <map>
#include <string>

namespace llmtrain {

/// A value as YAML flow text, and where it comes from ("" = not said).
struct NotedValue {
  std::string value;
  std::string note;
};
using NotedValues = std::map<std::string, NotedValue, std::less<>>;  ///< by full name of the key

/// Only these keys, in the order of the deck, each with its note as a comment.
std::string to_noted_yaml(const NotedValues& values);

}  // namespace llmtrain
