// SPDX-License-Identifier: Apache-2.0
/// The nearest known name to a misspelt one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace llmtrain {

/// Edits (insert, delete, replace, swap of neighbours) between two names; case and '-' against '_' do not count.
int edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `name` within about a third of its length (at least 1 edit); empty if none is near.
std::string nearest(std::string_view name, std::span<const std::string> candidates);

/// "; did you mean 'X'?", or "" for an empty name.
std::string did_you_mean(std::string_view name);

}  // namespace llmtrain
