// SPDX-License-Identifier: Apache-2.0
/// The count of skipped updates and the end of a run that makes nothing but these.
#pragma once

#include <cstdint>
#include <string>

namespace llmtrain {

/// Fed with the step's globally reduced numbers, it decides alike on every rank.
class Skips {
 public:
  /// `total` and `in_a_row` go on from a checkpoint; more than `max_in_a_row` is the end.
  Skips(std::int64_t max_in_a_row, std::int64_t total, std::int64_t in_a_row)
      : max_(max_in_a_row), total_(total), in_a_row_(in_a_row) {}

  void add(bool skipped);

  std::int64_t total() const { return total_; }
  std::int64_t in_a_row() const { return in_a_row_; }
  bool too_many() const { return in_a_row_ > max_; }
  /// "step 12: update skipped: loss nan, gradient norm inf; 2 in a row (optimizer.max_skipped 20), 5 in all"
  std::string message(std::int64_t step, double loss, double gradient_norm) const;

 private:
  std::int64_t max_;
  std::int64_t total_;
  std::int64_t in_a_row_;
};

}  // namespace llmtrain
