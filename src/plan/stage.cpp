// SPDX-License-Identifier: Apache-2.0
/// Dry runs of one rank on the trace back end.
#include "llmtrain/plan/stage.hpp"

#include <algorithm>
#include <functional>
#include <set>

#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/step_phases.hpp"
#include "llmtrain/plan/stream_clock.hpp"

namespace llmtrain {

namespace {

DeviceKind kind_of(const Hardware& hardware) { return hardware.gpu ? DeviceKind::cuda : DeviceKind::cpu; }

/// Adds the totals of a whole step.
void add_totals(const TraceRecorder& whole, const StreamClock& clock, StageWork& work) {
  for (const auto& [name, total] : whole.operations()) {
    work.flops += total.flops;
    if (total.flops == 0)
      work.bytes += static_cast<double>(total.bytes_read) + static_cast<double>(total.bytes_written);
  }
  for (const auto& [key, total] : whole.collectives()) {
    if (key.second == "copy") continue;  // does not leave the rank
    CollectiveTotal& out = work.collectives[key];
    out.calls = total.calls;
    out.bytes = total.bytes;
    out.placement = clock.placements().at(key.first);
    out.sent = sent_bytes(key.second, static_cast<double>(out.bytes), out.placement.size);
    if (key.second == "receive") out.sent = 0;
  }
}

void load_nothing(std::int64_t, const Batch&) {}

/// Times of a step's actions by the clock of its compute stream.
void time_step(Parts& parts, OpObserver& observer, const StreamClock& clock, StageWork& work) {
  Timers timers;
  parts.device.set_observer(&observer);
  begin_gradients(parts);
  double before = clock.now(parts.stream);
  const auto since = [&] {
    const double now = clock.now(parts.stream);
    return now - std::exchange(before, now);
  };
  since();
  for (const Action& action : parts.actions) {
    run_action(parts, action, load_nothing, timers);
    if (action.computes()) (action.kind == Action::Kind::forward ? work.forwards : work.backwards).push_back(since());
  }
  finish_gradients(parts, timers);
  update_weights(parts, StepInputs{}, timers);
  work.tail = since();
  parts.device.set_observer(nullptr);
}

}  // namespace

Topology topology_on(const Deck& deck, int ranks, const Hardware& hardware) {
  return {deck, ranks, filled_nodes(ranks, hardware.ranks_a_node)};
}

int rank_of_stage(const Topology& topology, int stage) {
  Coordinates at;
  at.pp = stage;
  return topology.rank(at);
}

StageWork trace_stage(const PlanTarget& target, int rank, const StageChecks& checks) {
  const Stretch stretch = stretch_of(target.deck, target.topology);
  const auto dry_rank = [&](std::int64_t micro_batches) {
    return DryRank(target.deck, target.topology, rank, kind_of(target.hardware), micro_batches);
  };
  StageWork work;
  DryRank few = dry_rank(stretch.few);
  StreamClock clock(target.hardware);
  TraceRecorder totals;
  Observers both{&clock, &totals};
  time_step(few.parts, checks.totals ? static_cast<OpObserver&>(both) : clock, clock, work);
  work.by_operation = clock.by_operation();
  work.by_group = clock.by_group();
  work.exposed = by_axis(clock.exposed());
  work.scratch_bytes = std::max<std::int64_t>(few.parts.scratch->high_water(), 1);
  if (checks.hazards) {
    HazardChecker hazards([&](const void* address) { return few.parts.arena.at(address); });
    few.step(hazards);
    few.step(hazards);  // what a step leaves in flight meets the next one
  }
  if (!checks.totals) return work;
  if (stretch.more() > 0) {
    TraceRecorder longer;
    dry_rank(stretch.few + stretch.period).step(longer);
    totals.extrapolate(longer, stretch.more());
  }
  add_totals(totals, clock, work);
  return work;
}

MemoryPlan stage_memory(const PlanTarget& target, int rank, std::int64_t scratch_bytes, StepLength length) {
  const Stretch stretch = stretch_of(target.deck, target.topology);
  const bool keeps_all = target.deck.schedule.kind == ScheduleKind::gpipe;  // every micro-batch alive at once
  const bool whole = length == StepLength::whole || keeps_all;
  return DryRank(target.deck, target.topology, rank, kind_of(target.hardware),
                 whole ? stretch.micro_batches : stretch.few, scratch_bytes)
      .parts.plan;
}

std::vector<std::int64_t> storage_sizes(const PlanTarget& target, int rank) {
  const DryRank dry(target.deck, target.topology, rank, kind_of(target.hardware),
                    stretch_of(target.deck, target.topology).few);
  std::set<std::int64_t, std::greater<>> sizes;
  for (const StorageLayout& layout : dry.parts.shape.layouts) sizes.insert(layout.numel());
  return {sizes.begin(), sizes.end()};
}

IssuedBatches issued_batches(const PlanTarget& target, int rank) {
  DryRank few(target.deck, target.topology, rank, kind_of(target.hardware),
              stretch_of(target.deck, target.topology).few);
  IssuedBatches issued;
  few.step(issued);
  return issued;
}

}  // namespace llmtrain
