// SPDX-License-Identifier: Apache-2.0
/// What the ranks of `llmtrain preprocess` tell each other while they work.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "llmtrain/base/mpi_maximum.hpp"

namespace llmtrain {

/// How far a rank is.
struct Counts {
  std::int64_t consumed = 0;    ///< bytes of the input files
  std::int64_t line_bytes = 0;  ///< unpacked
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  static constexpr std::size_t size = 4;
};

/// What ranks tell each other while they work, once a second: how far they are, and whether they have to stop. Each rank's
/// numbers only grow, so that the maximum over all ranks of a table with a row for each is the whole table.
class Rounds {
 public:
  enum Head : std::size_t { signal, failed, busy, heads };

  explicit Rounds(const MpiComm& world)
      : rank_(world ? world.rank() : 0), table_(heads + Counts::size * (world ? world.size() : 1)) {
    if (world && world.size() > 1) maximum_.emplace(world, static_cast<int>(table_.size()));
    table_[busy] = 1;
  }

  /// Posts this rank's state and reads all ranks', as of the last call. Collective.
  void exchange(int signal_number, bool has_failed, bool is_busy, const Counts& mine) {
    if (maximum_ && posted_) {
      const auto all = maximum_->read();
      std::copy(all.begin(), all.end(), table_.begin());
    }
    std::vector<std::int64_t> row(table_.size());
    row[signal] = signal_number;
    row[failed] = has_failed ? 1 : 0;
    row[busy] = is_busy ? 1 : 0;
    const std::array<std::int64_t, Counts::size> numbers = {mine.consumed, mine.line_bytes, mine.documents,
                                                            mine.tokens};
    std::copy(numbers.begin(), numbers.end(),
              row.begin() + heads + static_cast<std::ptrdiff_t>(numbers.size()) * rank_);
    if (!maximum_) {
      table_ = std::move(row);
    } else if (!is_over()) {
      maximum_->post(row);
      posted_ = true;
    }
  }

  std::int64_t head(Head which) const { return table_[which]; }
  /// All ranks know this of the same call: nobody works any more, or has to.
  bool is_over() const { return table_[busy] == 0 || table_[failed] != 0 || table_[signal] != 0; }
  Counts sum() const {
    Counts all;
    for (std::size_t i = heads; i < table_.size(); i += Counts::size) {
      all.consumed += table_[i];
      all.line_bytes += table_[i + 1];
      all.documents += table_[i + 2];
      all.tokens += table_[i + 3];
    }
    return all;
  }

 private:
  int rank_;
  std::vector<std::int64_t> table_;
  std::optional<MpiMaximum> maximum_;
  bool posted_ = false;
};

}  // namespace llmtrain
