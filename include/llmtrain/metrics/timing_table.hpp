// SPDX-License-Identifier: Apache-2.0
/// The timer ranges of all ranks side by side: which part of the step costs what, and which rank is the slow one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/base/mpi.hpp"
#include "llmtrain/base/timer.hpp"

namespace llmtrain {

/// One range over the ranks that opened it; not all do, the embedding is only on the first stage.
struct TimingRow {
  std::string path;        ///< "step/forward"
  int ranks = 0;           ///< that have this range
  std::int64_t calls = 0;  ///< the most of any rank
  double min_seconds = 0;  ///< totals of a rank
  double mean_seconds = 0;
  double max_seconds = 0;
  int slowest_rank = 0;  ///< the lowest rank with max_seconds
};

/// Merges totals by rank into rows: parents before their children, else in order of first appearance. Ranges never
/// called since reset() are left out.
std::vector<TimingRow> merge_timings(std::span<const std::vector<TimerTotal>> by_rank);

/// The same over the communicator's ranks, given to all of them. A null communicator is one rank. Collective.
std::vector<TimingRow> gather_timings(const Timers& timers, const MpiComm& comm);

/// An aligned table, one line a range and a heading, without a newline at the end. `share` is the mean time over that
/// of the range `whole` ("step"), blank if it was not timed.
std::string format_timings(std::span<const TimingRow> rows, const std::string& whole);

}  // namespace llmtrain
