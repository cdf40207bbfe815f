// SPDX-License-Identifier: Apache-2.0
/// A YAML document as a plain tree with places, restricted to what decks may hold.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/config/findings.hpp"

namespace llmtrain {

/// Where a node stands; line 0 means the command line, where `source` says it all. Lines and columns count from 1.
struct Place {
  std::shared_ptr<const std::string> source;
  int line = 0;
  int column = 0;
  std::string text() const;  ///< "deck.yaml:12:5"
};

struct Node {
  enum class Kind { null, plain, quoted, list, map };
  Kind kind = Kind::null;
  std::string text;  ///< of plain and quoted
  Place place;
  std::vector<Node> keys;   ///< of a map; always plain or quoted
  std::vector<Node> items;  ///< of a list; or the values of a map, beside their keys

  bool is_text() const { return kind == Kind::plain || kind == Kind::quoted; }
  std::string_view kind_name() const;  ///< "a map", "a list", ...
};

/// Parses one YAML document: no anchors, aliases, tags, duplicate keys, second documents, tabs as indentation, control
/// characters or invalid UTF-8; at most 1 MiB, depth 64, 100,000 nodes. Adds what is wrong to `findings` and returns
/// what could be read; a null node for an empty text.
Node parse_tree(std::string_view text, const std::string& source, bool command_line, Findings& findings);

}  // namespace llmtrain
