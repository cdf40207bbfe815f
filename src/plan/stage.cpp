// SPDX-License-Identifier: Apache-2.0
/// Dry runs of one rank on the trace back end.
#include "llmtrain/plan/stage.hpp"

#include <algorithm>
#include <optional>

#include "llmtrain/driver/micro_batches.hpp"
#include "llmtrain/driver/step_phases.hpp"
#include "llmtrain/plan/stream_clock.hpp"

namespace llmtrain {

namespace {

DeviceKind kind_of(const Hardware& hardware) { return hardware.gpu ? DeviceKind::cuda : DeviceKind::cpu; }

Deck with_micro_batches(const PlanTarget& target, std::int64_t micro_batches) {
  Deck deck = target.deck;
  deck.schedule.global_batch = micro_batches * deck.schedule.micro_batch * target.topology.size(data_axes);
  return deck;
}

void load_nothing(std::int64_t, const Batch&) {}

/// The object graph of a rank without memory.
struct DryRank {
  DryRank(const Deck& deck, const Topology& topology, int rank, DeviceKind kind, std::int64_t scratch_bytes = 0)
      : device(make_trace_device(kind)), parts(deck, {topology, rank, MpiComm{}}, *device, scratch_bytes) {
    parts.params.publish();  // as after the update of the step before
  }
  std::unique_ptr<Device> device;
  Parts parts;
};

/// Adds up what is in both totals of `few` and of one period more, stretched.
void stretch_totals(const TraceRecorder& few, const TraceRecorder* more, const Stretch& stretch,
                    const StreamClock& clock, StageWork& work) {
  const auto whole = [&](auto a, auto b) { return a + static_cast<decltype(a)>(stretch.more()) * (b - a); };
  for (const auto& [name, total] : few.operations()) {
    const TraceRecorder::OperationTotal& longer = more == nullptr ? total : more->operations().at(name);
    work.flops += whole(total.flops, longer.flops);
    if (total.flops > 0) continue;
    work.bytes += static_cast<double>(whole(total.bytes_read, longer.bytes_read)) +
                  static_cast<double>(whole(total.bytes_written, longer.bytes_written));
  }
  for (const auto& [key, total] : few.collectives()) {
    const TraceRecorder::CollectiveTotal& longer = more == nullptr ? total : more->collectives().at(key);
    CollectiveTotal& out = work.collectives[key];
    out.calls = whole(total.calls, longer.calls);
    out.bytes = whole(total.bytes, longer.bytes);
    out.placement = clock.placements().at(key.first);
    out.sent = sent_bytes(key.second, static_cast<double>(out.bytes), out.placement.size);
    if (key.second == "receive") out.sent = 0;
  }
}

void run_dry(Parts& parts, OpObserver& observer) {
  Timers timers;
  parts.device.set_observer(&observer);
  run_step(parts, StepInputs{}, load_nothing, timers);
  parts.device.set_observer(nullptr);
}

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

/// Batches by group as text; of a transfer both ends give the same.
class BatchTexts final : public OpObserver {
 public:
  std::map<GroupKey, std::vector<std::string>> texts;

  void on_operation(const OpNote&) override {}
  void on_batch(const BatchNote& note) override {
    std::string text;
    for (const CollectiveNote& c : note.collectives) {
      const std::string_view name = c.name;
      const Tensor& larger = c.destination.bytes() > c.source.bytes() ? c.destination : c.source;
      text += fmt::format("{} {}; ", name == "send" || name == "receive" ? "transfer" : name, larger.describe());
    }
    texts[{note.group->name, note.group->world_ranks}].push_back(std::move(text));
  }
};

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

Stretch stretch_of(const ScheduleConfig& schedule, int stages, std::int64_t micro_batches) {
  const bool interleaved = schedule.kind == ScheduleKind::interleaved && schedule.chunks > 1;
  Stretch stretch{micro_batches, 2 * stages + 2, 1};
  // Interleaved goes round the stages in groups; where these are not all alike there is no period.
  if (interleaved) stretch = {micro_batches, micro_batches % stages == 0 ? 4 * stages : micro_batches, stages};
  if (stretch.few + 2 * stretch.period >= micro_batches) stretch.few = micro_batches;
  return stretch;
}

int rank_of_stage(const Topology& topology, int stage, bool last) {
  Coordinates at;
  at.pp = stage;
  if (last) {
    for (const Axis axis : {Axis::tp, Axis::cp, Axis::shard, Axis::replicate}) at.along(axis) = topology.size(axis) - 1;
  }
  return topology.rank(at);
}

StageWork trace_stage(const PlanTarget& target, int rank, const StageChecks& checks) {
  const Topology& topology = target.topology;
  const Stretch stretch =
      stretch_of(target.deck.schedule, topology.size(Axis::pp), micro_batches_of(target.deck, target.topology));
  StageWork work;
  DryRank few(with_micro_batches(target, stretch.few), topology, rank, kind_of(target.hardware));
  StreamClock clock(target.hardware);
  TraceRecorder totals;
  Observers both{&clock, &totals};
  time_step(few.parts, checks.totals ? static_cast<OpObserver&>(both) : clock, clock, work);
  work.by_operation = clock.by_operation();
  work.by_group = clock.by_group();
  work.scratch_bytes = std::max<std::int64_t>(few.parts.scratch->high_water(), 1);
  if (checks.hazards) {
    HazardChecker hazards([&](const void* address) { return few.parts.arena.at(address); });
    run_dry(few.parts, hazards);
    run_dry(few.parts, hazards);  // what a step leaves in flight meets the next one
  }
  if (!checks.totals) return work;
  if (stretch.more() == 0) {
    stretch_totals(totals, nullptr, stretch, clock, work);
    return work;
  }
  DryRank longer(with_micro_batches(target, stretch.few + stretch.period), topology, rank, kind_of(target.hardware));
  TraceRecorder more;
  run_dry(longer.parts, more);
  stretch_totals(totals, &more, stretch, clock, work);
  return work;
}

MemoryPlan stage_memory(const PlanTarget& target, int rank, std::int64_t scratch_bytes, StepLength length) {
  const std::int64_t all = micro_batches_of(target.deck, target.topology);
  const bool keeps_all = target.deck.schedule.kind == ScheduleKind::gpipe;  // every micro-batch alive at once
  const std::int64_t count = length == StepLength::whole || keeps_all
                                 ? all
                                 : stretch_of(target.deck.schedule, target.topology.size(Axis::pp), all).few;
  return DryRank(with_micro_batches(target, count), target.topology, rank, kind_of(target.hardware), scratch_bytes)
      .parts.plan;
}

std::map<GroupKey, std::vector<std::string>> issued_batches(const PlanTarget& target, int rank) {
  const Stretch stretch =
      stretch_of(target.deck.schedule, target.topology.size(Axis::pp), micro_batches_of(target.deck, target.topology));
  DryRank few(with_micro_batches(target, stretch.few), target.topology, rank, kind_of(target.hardware));
  BatchTexts texts;
  run_dry(few.parts, texts);
  return texts.texts;
}

}  // namespace llmtrain
