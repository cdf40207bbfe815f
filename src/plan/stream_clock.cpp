// SPDX-License-Identifier: Apache-2.0
/// Clocks of streams and groups.
#include "llmtrain/plan/stream_clock.hpp"

#include <algorithm>
#include <string_view>

namespace llmtrain {

double StreamClock::now(Stream stream) const {
  const auto found = streams_.find(stream.id);
  return found == streams_.end() ? 0 : found->second;
}

double StreamClock::time_of(Event event) const {
  const auto found = events_.find(event.id);
  return event.device == nullptr || found == events_.end() ? 0 : found->second;
}

std::map<std::string, double> StreamClock::by_operation() const {
  std::map<std::string, double> sums;
  for (const auto& [name, seconds] : by_operation_) sums[name] += seconds;
  return sums;
}

void StreamClock::on_operation(const OpNote& note) {
  const double seconds = operation_seconds(hardware_, note);
  clock(note.stream) += seconds;
  by_operation_[note.name] += seconds;  // by address: names are literals
  computing_ = note.stream.id;
}

void StreamClock::on_batch(const BatchNote& batch) {
  double& group = groups_[batch.group];
  const auto [placement, is_new] = placements_.try_emplace(batch.group);
  if (is_new) {
    placement->second = place_group(batch.group->world_ranks, hardware_.ranks_a_node);
    GroupPlacement& named = by_name_[batch.group->name];
    if (placement->second.nodes >= named.nodes) named = placement->second;
  }
  const std::string_view first = batch.collectives[0].name;
  const bool transfer = first == "send" || first == "receive";
  const BatchSeconds seconds =
      transfer ? BatchSeconds{} : batch_seconds(hardware_, placement->second, batch.collectives);
  group = std::max(time_of(batch.ready), group) + seconds.batch;
  streams_[computing_] += seconds.felt;
  events_[batch.done.id] = group;
  batches_[batch.done.id] = batch.group;
  by_group_[batch.group->name] += seconds.batch;
}

void StreamClock::on_record(Stream stream, Event event) { events_[event.id] = now(stream); }

void StreamClock::on_wait(Stream stream, Event event) {
  double& at = clock(stream);
  const double waited = time_of(event) - at;
  if (waited <= 0) return;
  at += waited;
  const auto batch = batches_.find(event.id);
  if (batch != batches_.end()) exposed_[batch->second->name] += waited;
}

}  // namespace llmtrain
