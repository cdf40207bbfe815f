// SPDX-License-Identifier: Apache-2.0
/// Short steps and how they stretch.
#include "llmtrain/driver/dry_run.hpp"

#include <algorithm>

#include "llmtrain/driver/micro_batches.hpp"
#include "llmtrain/driver/step.hpp"

namespace llmtrain {

namespace {

Deck with_micro_batches(Deck deck, const Topology& topology, std::int64_t micro_batches) {
  deck.schedule.global_batch = micro_batches * deck.schedule.micro_batch * topology.size(data_axes);
  return deck;
}

}  // namespace

double Stretch::at(const std::vector<double>& values, std::int64_t k, int chunks) const {
  const auto count = static_cast<std::int64_t>(values.size());
  const std::int64_t left_out = (micro_batches - few) * chunks, middle = count / 2, step = period * chunks;
  std::int64_t at = k;
  if (k >= middle && left_out > 0) {
    at = k < middle + left_out ? middle - step + (k - middle) % step : k - left_out;
  }
  return values[static_cast<std::size_t>(at)];
}

Stretch stretch_of(const Deck& deck, const Topology& topology) {
  const ScheduleConfig& schedule = deck.schedule;
  const int stages = topology.size(Axis::pp);
  const std::int64_t micro_batches = micro_batches_of(deck, topology);
  const bool interleaved = schedule.kind == ScheduleKind::interleaved && schedule.chunks > 1;
  Stretch stretch{micro_batches, 2 * stages + 2, 1};
  // Interleaved goes round the stages in groups; where these are not all alike there is no period.
  if (interleaved) stretch = {micro_batches, micro_batches % stages == 0 ? 4 * stages : micro_batches, stages};
  if (stretch.few + 2 * stretch.period >= micro_batches) stretch.few = micro_batches;
  return stretch;
}

DryRank::DryRank(const Deck& deck, const Topology& topology, int rank, DeviceKind target, std::int64_t micro_batches,
                 std::int64_t scratch_bytes)
    : device(make_trace_device(target)),
      parts(with_micro_batches(deck, topology, micro_batches), {topology, rank, MpiComm{}}, *device, scratch_bytes) {
  parts.params.publish();  // as after the update of the step before
}

void DryRank::step(OpObserver& observer) {
  Timers timers;
  device->set_observer(&observer);
  run_step(
      parts, StepInputs{}, [](std::int64_t, const Batch&) {}, timers);
  device->set_observer(nullptr);
}

Measured measure(const Deck& deck, const Topology& topology, int rank, DeviceKind target) {
  const Stretch stretch = stretch_of(deck, topology);
  Measured measured;
  DryRank few(deck, topology, rank, target, stretch.few);
  HazardChecker hazards([&](const void* address) { return few.parts.arena.at(address); });
  Observers both{&measured.trace, &hazards};
  few.step(both);
  few.step(hazards);  // what a step leaves in flight meets the next one
  measured.scratch_bytes = std::max<std::int64_t>(few.parts.scratch->high_water(), 1);
  if (stretch.more() > 0) {
    TraceRecorder longer;
    DryRank(deck, topology, rank, target, stretch.few + stretch.period).step(longer);
    measured.trace.extrapolate(longer, stretch.more());
  }
  measured.plan = DryRank(deck, topology, rank, target, stretch.micro_batches, measured.scratch_bytes).parts.plan;
  return measured;
}

}  // namespace llmtrain
