// SPDX-License-Identifier: Apache-2.0
/// The split string of a deck ("98,2,0") as ranges of sequences, cut as Megatron cuts them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace llmtrain {

/// Sequences [begin, end) of a dataset.
struct SequenceRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

/// Shares of train, valid and test; they sum to 1.
using Split = std::array<double, 3>;

/// Reads one to three non-negative decimal numbers separated by commas, completes them with zeros and divides by their
/// sum. Throws Error(configuration) naming the field that cannot be used.
Split parse_split(const std::string& text);

/// The three ranges: bounds are the cumulative shares times `sequences`, rounded half to even.
std::array<SequenceRange, 3> split_ranges(const Split& split, std::int64_t sequences);

}  // namespace llmtrain
