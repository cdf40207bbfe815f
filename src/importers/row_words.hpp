// SPDX-License-Identifier: Apache-2.0
/// The short words that the rows of the importers' tables are written in.
#pragma once

#include "llmtrain/importers/importers.hpp"

namespace llmtrain::row_words {

inline constexpr auto key = RowKind::key;
inline constexpr auto rule = RowKind::rule;
inline constexpr auto ignored = RowKind::not_applicable;
inline constexpr auto lacking = RowKind::unsupported;
inline constexpr auto flag = Takes::nothing;
inline constexpr auto many = Takes::many;

}  // namespace llmtrain::row_words
