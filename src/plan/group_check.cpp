// SPDX-License-Identifier: Apache-2.0
/// Batches in a form that members of a group have in common.
#include "llmtrain/plan/group_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

IssuedCollective issued(const Group& group, const CollectiveNote& note) {
  const std::string_view name = note.name;
  const Tensor& larger = note.destination.bytes() > note.source.bytes() ? note.destination : note.source;
  IssuedCollective out{name, larger.dtype, larger.numel(), -1, -1, note.reduce};
  if (name == "broadcast") out.from = note.peer;
  if (name == "shift") out.to = note.peer;
  if (name == "send" || name == "receive") {
    out.name = "transfer";
    out.from = name == "send" ? group.rank : note.peer;
    out.to = name == "send" ? note.peer : group.rank;
  }
  return out;
}

std::string text_of(const std::vector<IssuedBatch>& batches, std::size_t at) {
  if (at >= batches.size()) return "nothing";
  std::string text;
  for (const IssuedCollective& c : batches[at]) {
    text += fmt::format("{}{} of {} x {}", text.empty() ? "" : ", ", c.name, c.elements, name_of(c.dtype));
    if (c.from >= 0) text += fmt::format(" from {}", c.from);
    if (c.to >= 0) text += fmt::format(" {} {}", c.name == "shift" ? "by" : "to", c.to);
    if (c.reduce == ReduceOp::max) text += " (maximum)";
  }
  return text;
}

std::string title(const GroupKey& group) {
  return fmt::format("'{}' of ranks {}", group.first, fmt::join(group.second, ", "));
}

}  // namespace

void IssuedBatches::on_batch(const BatchNote& note) {
  std::vector<IssuedBatch>*& batches = known_[note.group];
  if (batches == nullptr) batches = &by_group_[{note.group->name, note.group->world_ranks}];
  IssuedBatch& batch = batches->emplace_back();
  for (const CollectiveNote& c : note.collectives) batch.push_back(issued(*note.group, c));
}

void GroupCheck::add(int rank, const IssuedBatches& issued) {
  ranks_.insert(rank);
  for (const auto& [group, batches] : issued.by_group()) {
    const auto [at, is_first] = seen_.try_emplace(group);
    Seen& seen = at->second;
    seen.ranks.push_back(rank);
    if (is_first) {
      seen.batches = batches;
      continue;
    }
    const auto differs = std::mismatch(seen.batches.begin(), seen.batches.end(), batches.begin(), batches.end());
    if (differs.first == seen.batches.end() && differs.second == batches.end()) continue;
    const auto number = static_cast<std::size_t>(differs.first - seen.batches.begin());
    fail(ExitCode::internal,
         "internal error: in group {} batch {} is {} on rank {} but {} on rank {}; please report this with the deck",
         title(group), number + 1, text_of(seen.batches, number), seen.ranks.front(), text_of(batches, number), rank);
  }
}

void GroupCheck::finish() const {
  for (const auto& [group, seen] : seen_) {
    for (const int member : group.second) {
      if (!ranks_.contains(member) || std::ranges::find(seen.ranks, member) != seen.ranks.end()) continue;
      fail(ExitCode::internal,
           "internal error: in group {} batch 1 is {} on rank {} but nothing on rank {}; please report this with the "
           "deck",
           title(group), text_of(seen.batches, 0), seen.ranks.front(), member);
    }
  }
}

std::map<std::string, int> GroupCheck::compared() const {
  std::map<std::string, int> counts;
  for (const auto& [group, seen] : seen_) counts[group.first] += seen.ranks.size() > 1 ? 1 : 0;
  return counts;
}

}  // namespace llmtrain
