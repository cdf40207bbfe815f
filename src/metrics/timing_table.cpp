// SPDX-License-Identifier: Apache-2.0
/// Totals travel as text lines "calls seconds path" and are merged on every rank alike.
#include "llmtrain/metrics/timing_table.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/text.hpp"

namespace llmtrain {

namespace {

std::string encode(const std::vector<TimerTotal>& totals) {
  std::string text;
  for (const TimerTotal& total : totals)
    text += fmt::format("{} {} {}\n", total.calls, shortest(total.seconds), total.path);
  return text;
}

std::vector<TimerTotal> decode(std::string_view text) {
  std::vector<TimerTotal> totals;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const char* const stop = text.data() + end;
    TimerTotal total;
    const auto calls = std::from_chars(text.data(), stop, total.calls);
    const auto seconds = std::from_chars(calls.ptr + 1, stop, total.seconds);
    LLMTRAIN_CHECK(calls.ec == std::errc() && seconds.ec == std::errc());
    total.path.assign(seconds.ptr + 1, stop);
    totals.push_back(std::move(total));
    text.remove_prefix(end + 1);
  }
  return totals;
}

/// Where a new range goes: behind its last sibling's descendants, or behind its parent; so the table reads as a tree.
std::size_t place_of(const std::vector<TimingRow>& rows, const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return rows.size();
  const std::string parent = path.substr(0, slash);
  std::size_t place = rows.size();
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].path == parent || rows[i].path.starts_with(parent + "/")) place = i + 1;
  return place;
}

void add(std::vector<TimingRow>& rows, int rank, const TimerTotal& total) {
  auto row = std::find_if(rows.begin(), rows.end(), [&](const TimingRow& r) { return r.path == total.path; });
  if (row == rows.end()) {
    const auto place = static_cast<std::ptrdiff_t>(place_of(rows, total.path));
    row = rows.insert(rows.begin() + place, {.path = total.path, .min_seconds = total.seconds, .max_seconds = -1});
  }
  row->ranks += 1;
  row->calls = std::max(row->calls, total.calls);
  row->min_seconds = std::min(row->min_seconds, total.seconds);
  row->mean_seconds += total.seconds;  // a sum until all are added
  if (total.seconds > row->max_seconds) {
    row->max_seconds = total.seconds;
    row->slowest_rank = rank;
  }
}

}  // namespace

std::vector<TimingRow> merge_timings(std::span<const std::vector<TimerTotal>> by_rank) {
  std::vector<TimingRow> rows;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
    for (const TimerTotal& total : by_rank[rank])
      if (total.calls > 0) add(rows, static_cast<int>(rank), total);
  for (TimingRow& row : rows) row.mean_seconds /= row.ranks;
  return rows;
}

std::vector<TimingRow> gather_timings(const Timers& timers, const MpiComm& comm) {
  std::vector<std::vector<TimerTotal>> by_rank;
  if (comm) {
    for (const std::string& text : comm.all_gather(encode(timers.totals()))) by_rank.push_back(decode(text));
  } else {
    by_rank.push_back(timers.totals());
  }
  return merge_timings(by_rank);
}

std::string format_timings(std::span<const TimingRow> rows, const std::string& whole) {
  double whole_seconds = 0;
  std::size_t width = 4;
  for (const TimingRow& row : rows) {
    if (row.path == whole) whole_seconds = row.mean_seconds;
    width = std::max(width, row.path.size());
  }
  std::string text = fmt::format("{:<{}}  {:>9}  {:>10}  {:>10}  {:>10}  {:>7}  {:>5}  {:>6}", "time", width, "calls",
                                 "min s", "mean s", "max s", "slowest", "ranks", "share");
  for (const TimingRow& row : rows) {
    const std::string share = whole_seconds > 0 ? fmt::format("{:.1f}%", 100 * row.mean_seconds / whole_seconds) : "";
    text +=
        fmt::format("\n{:<{}}  {:>9}  {:>10.4f}  {:>10.4f}  {:>10.4f}  {:>7}  {:>5}  {:>6}", row.path, width, row.calls,
                    row.min_seconds, row.mean_seconds, row.max_seconds, row.slowest_rank, row.ranks, share);
  }
  return text;
}

}  // namespace llmtrain
