// SPDX-License-Identifier: Apache-2.0
/// Going on from a checkpoint: which keys may differ from the deck that wrote it, and what is kept from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/checkpoint/piece.hpp"
#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// A key whose value is not the stored one.
struct KeyChange {
  std::string key;
  std::string stored;
  std::string now;
  bool allowed = false;
};

/// All keys in which `now` differs from `stored`; both resolved. What may differ is listed in the design of checkpoints and
/// in `now.checkpoint.allow` (blocks or block.key).
std::vector<KeyChange> key_changes(const Deck& stored, const Deck& now);

/// True if the value of a key may differ, by the design or by checkpoint.allow of `now`.
bool is_allowed(std::string_view key, const Deck& now);

/// Throws Error(checkpoint_incompatible) with a table of what differs, unless all changes are allowed.
void require_allowed(const std::vector<KeyChange>& changes, const std::string& checkpoint);

}  // namespace llmtrain
