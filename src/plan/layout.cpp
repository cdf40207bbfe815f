// SPDX-License-Identifier: Apache-2.0
/// Stages planned one by one, equal ones together; then their actions put into one pipeline.
#include "llmtrain/plan/layout.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "llmtrain/config/check.hpp"
#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/micro_batches.hpp"
#include "llmtrain/metrics/flops.hpp"
#include "llmtrain/model/pieces.hpp"
#include "llmtrain/topology/placement.hpp"

namespace llmtrain {

namespace {

constexpr double ticks_a_second = 1e9;

std::int64_t ticks(double seconds) { return std::llround(seconds * ticks_a_second); }

/// Stages with the same pieces do the same work.
using StageKind = std::vector<std::array<std::int64_t, 3>>;

StageKind kind_of(const std::vector<ModelPiece>& pieces, int stages, int stage) {
  StageKind kind;
  for (std::size_t i = static_cast<std::size_t>(stage); i < pieces.size(); i += static_cast<std::size_t>(stages)) {
    kind.push_back({pieces[i].layers, pieces[i].embedding, pieces[i].head});
  }
  return kind;
}

std::string class_name(const std::vector<int>& of, int stages) {
  if (stages == 1) return "all ranks";
  if (of == std::vector<int>{0}) return "first stage";
  if (of == std::vector<int>{stages - 1}) return "last stage";
  return fmt::format("stage{} {}", of.size() == 1 ? "" : "s", ranges(of));
}

bool same_bytes(const MemoryPlan& a, const MemoryPlan& b) {
  for (int i = 0; i < segment_count; ++i) {
    if (a.bytes(static_cast<Segment>(i)) != b.bytes(static_cast<Segment>(i))) return false;
  }
  return true;
}

/// The ranks whose batches are compared: all of a small job. Of a large one every stage of the first pipeline (transfers,
/// tied weights), and through `kinds`, one stage of each kind, the members of its first group along every other axis: all,
/// or as many that lie evenly.
std::set<int> compared_ranks(const Topology& topology, const std::vector<int>& kinds) {
  constexpr int most_ranks = 64, most_members = 8;
  std::set<int> ranks;
  for (int rank = 0; topology.ranks() <= most_ranks && rank < topology.ranks(); ++rank) ranks.insert(rank);
  for (int stage = 0; stage < topology.size(Axis::pp); ++stage) ranks.insert(rank_of_stage(topology, stage));
  for (const int stage : kinds) {
    for (const Axis axis : {Axis::tp, Axis::shard, Axis::replicate}) {
      const int size = topology.size(axis), count = std::min(size, most_members);
      Coordinates at = topology.coordinates(rank_of_stage(topology, stage));
      for (int i = 0; i < count; ++i) {
        at.along(axis) = count == 1 ? 0 : i * (size - 1) / (count - 1);
        ranks.insert(topology.rank(at));
      }
    }
  }
  return ranks;
}

/// Compares what ranks issue; says what was proved.
std::string check_groups(const PlanTarget& target, const std::vector<int>& kinds) {
  GroupCheck check;
  const std::set<int> ranks = compared_ranks(target.topology, kinds);
  for (const int rank : ranks) check.add(rank, issued_batches(target, rank));
  check.finish();
  const int all = target.topology.ranks();
  std::string groups;
  for (const auto& [name, count] : check.compared()) {
    if (count > 0) groups += fmt::format("{}{} {}", groups.empty() ? "" : ", ", count, name);
  }
  return fmt::format(
      "all members of a group issue the same collectives in the same order, and sends meet receives: {} "
      "rank{} in groups of {}",
      std::ssize(ranks) == all ? fmt::format("all {}", all) : fmt::format("{} of {}", ranks.size(), all),
      all == 1 ? "" : "s", groups.empty() ? "one" : groups);
}

/// For each stage the first one of its kind.
std::vector<int> kinds_of(const PlanTarget& target) {
  const int stages = target.topology.size(Axis::pp);
  const std::vector<ModelPiece> pieces =
      cut_model(target.deck.model.layers, target.deck.parallel, stages * target.deck.schedule.chunks);
  std::map<StageKind, int> known;
  std::vector<int> firsts;
  for (int stage = 0; stage < stages; ++stage) {
    firsts.push_back(known.try_emplace(kind_of(pieces, stages, stage), stage).first->second);
  }
  return firsts;
}

/// Works of all stages, each kind dry-run once.
std::vector<StageWork> works_of(const PlanTarget& target, const std::vector<int>& kinds, PlanDepth depth) {
  const StageChecks checks{depth == PlanDepth::whole, depth == PlanDepth::whole};
  std::vector<StageWork> works;
  for (int stage = 0; stage < std::ssize(kinds); ++stage) {
    const int first = kinds[static_cast<std::size_t>(stage)];
    works.push_back(first < stage ? works[static_cast<std::size_t>(first)]
                                  : trace_stage(target, rank_of_stage(target.topology, stage), checks));
  }
  return works;
}

void add_classes(LayoutPlan& plan, const PlanTarget& target, const std::vector<int>& kinds,
                 const std::vector<StageWork>& works, PlanDepth depth) {
  const int stages = target.topology.size(Axis::pp);
  for (int stage = 0; stage < stages; ++stage) {
    // Of a kind the first one needs most memory, for it has most micro-batches alive.
    if (depth != PlanDepth::whole && kinds[static_cast<std::size_t>(stage)] < stage) continue;
    const StageWork& work = works[static_cast<std::size_t>(stage)];
    MemoryPlan memory = stage_memory(target, rank_of_stage(target.topology, stage), work.scratch_bytes,
                                     depth == PlanDepth::whole ? StepLength::whole : StepLength::few);
    const auto same = std::find_if(plan.classes.begin(), plan.classes.end(),
                                   [&](const RankClass& c) { return same_bytes(c.memory, memory); });
    if (same != plan.classes.end()) {
      same->stages.push_back(stage);
      continue;
    }
    plan.classes.push_back({"", {stage}, 0, std::move(memory), work});
  }
  for (RankClass& c : plan.classes) {
    c.name = class_name(c.stages, stages);
    c.ranks = std::ssize(c.stages) * (plan.ranks / stages);
    const double room = plan.hardware.memory - plan.hardware.reserved;
    if (plan.hardware.memory > 0 && static_cast<double>(c.peak_bytes()) > room) plan.fits = false;
  }
}

/// A pipeline's actions put together.
struct PipelineRun {
  double seconds = 0;  ///< until the last stage has updated its weights
  double busy = 0;     ///< of all stages, without what comes after the last action
  double length = 0;   ///< until the last action ends
};

PipelineRun run_pipeline(const PlanTarget& target, const std::vector<const StageWork*>& works, Stretch stretch,
                         std::int64_t micro_batches) {
  const Deck& deck = target.deck;
  const auto stages = static_cast<int>(works.size());
  const int chunks = deck.schedule.chunks;
  stretch.micro_batches = micro_batches;
  const auto schedules = make_schedules(deck.schedule.kind, stages, micro_batches, chunks);
  // Each stage's forwards, and its backwards, come in the order in which it issues them.
  std::vector<std::array<std::int64_t, 2>> issued(works.size());
  const auto work = [&](int stage, const Action& action) {
    const bool forward = action.kind == Action::Kind::forward;
    const StageWork& w = *works[static_cast<std::size_t>(stage)];
    const std::int64_t k = issued[static_cast<std::size_t>(stage)][forward ? 0 : 1]++;
    return ticks(stretch.at(forward ? w.forwards : w.backwards, k, chunks));
  };
  const bool split = deck.parallel.sequence && target.topology.size(Axis::tp) > 1;
  const std::int64_t rows =
      deck.schedule.micro_batch * deck.model.seq_len / (split ? target.topology.size(Axis::tp) : 1);
  const double bytes = static_cast<double>(rows * deck.model.hidden * size_of(data_dtype(deck.precision.compute)));
  const auto transfer = [&](int sender) {
    const int from = rank_of_stage(target.topology, sender), to = rank_of_stage(target.topology, (sender + 1) % stages);
    const bool inside = target.topology.node(from) == target.topology.node(to);
    const Copies& copies = target.hardware.copies;  // into the receiver's staging memory, and out of it
    if (inside && copies.bandwidth > 0) return ticks(2 * (copies.latency + bytes / copies.bandwidth));
    const Link& link = inside ? target.hardware.inside : target.hardware.across;
    return ticks(link.latency + bytes / link.bandwidth);
  };
  const Simulation simulation = simulate(schedules, {work, transfer});
  PipelineRun run;
  run.length = static_cast<double>(simulation.ticks) / ticks_a_second;
  run.busy = run.length * stages * (1 - simulation.idle());
  for (std::size_t i = 0; i < works.size(); ++i) {
    const double end = static_cast<double>(simulation.work[i].back().end) / ticks_a_second + works[i]->tail;
    run.seconds = std::max(run.seconds, end);
  }
  return run;
}

double sum_of(const std::map<std::string, double>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0, [](double sum, const auto& p) { return sum + p.second; });
}

/// Seconds of the short step's actions.
double actions_of(const StageWork& work) {
  return std::accumulate(work.forwards.begin(), work.forwards.end(), 0.0) +
         std::accumulate(work.backwards.begin(), work.backwards.end(), 0.0);
}

/// And of its tail.
double length_of(const StageWork& work) { return actions_of(work) + work.tail; }

}  // namespace

std::int64_t RankClass::static_bytes() const {
  return memory.bytes(Segment::params) + memory.bytes(Segment::master) + memory.bytes(Segment::moments) +
         memory.bytes(Segment::grads);
}

std::int64_t LayoutPlan::micro_batches() const { return micro_batches_of(deck, topology()); }

const RankClass& LayoutPlan::largest() const {
  return *std::max_element(classes.begin(), classes.end(),
                           [](const RankClass& a, const RankClass& b) { return a.peak_bytes() < b.peak_bytes(); });
}

double LayoutPlan::mfu(double flops) const {
  const double rate = hardware.peak.of(data_dtype(deck.precision.compute));
  return rate > 0 && times.seconds > 0 ? flops / (times.seconds * ranks * rate) : 0;
}

StepTimes pipeline_times(const PlanTarget& target, const std::vector<const StageWork*>& works) {
  // The first micro-batches fill the pipeline and find the slowest stage; from then on it goes evenly.
  const auto stages = static_cast<int>(works.size());
  const Stretch stretch = stretch_of(target.deck, target.topology);
  const std::int64_t settled = stretch.few + 2 * stages, round = stages;  // whole periods
  const bool is_long = settled + round < stretch.micro_batches;
  PipelineRun run = run_pipeline(target, works, stretch, is_long ? settled : stretch.micro_batches);
  if (is_long) {
    const PipelineRun longer = run_pipeline(target, works, stretch, settled + round);
    const double more = static_cast<double>(stretch.micro_batches - settled) / static_cast<double>(round);
    run.seconds += more * (longer.seconds - run.seconds);
    run.busy += more * (longer.busy - run.busy);
    run.length += more * (longer.length - run.length);
  }
  StepTimes times;
  times.bubble = stages == 1 ? 0 : 1 - run.busy / (run.length * stages);
  times.seconds = run.seconds;
  const StageWork& slowest = **std::max_element(
      works.begin(), works.end(), [](const StageWork* a, const StageWork* b) { return length_of(*a) < length_of(*b); });
  // The parts of the short step are the parts of the whole one but for what happens once, which both tell apart badly:
  // so in proportion.
  const double scale = (times.seconds * (1 - times.bubble)) / length_of(slowest);
  times.compute = sum_of(slowest.by_operation) * scale;
  times.waiting = std::max(0.0, length_of(slowest) - sum_of(slowest.by_operation)) * scale;
  const Exposed& exposed = slowest.exposed;
  times.exposed = {.tensor = exposed.tensor * scale,
                   .pipeline = exposed.pipeline * scale + times.bubble * times.seconds,
                   .data = exposed.data * scale,
                   .world = exposed.world * scale};
  for (const auto& [name, seconds] : slowest.by_operation) times.by_operation[name] = seconds * scale;
  for (const StageWork* work : works) times.stages.push_back(actions_of(*work));
  return times;
}

LayoutPlan plan_layout(const Deck& resolved, int ranks, const Hardware& hardware, PlanDepth depth) {
  check_deck(resolved, {.ranks = ranks});
  LayoutPlan plan{.deck = resolved, .ranks = ranks, .hardware = hardware};
  const Topology topology = topology_on(resolved, ranks, hardware);
  const PlanTarget target{plan.deck, topology, plan.hardware};
  const std::vector<int> kinds = kinds_of(target);
  const std::vector<StageWork> works = works_of(target, kinds, depth);
  add_classes(plan, target, kinds, works, depth);
  const FlopsPerToken per_token = flops_per_token(resolved.model);
  plan.tokens = resolved.schedule.global_batch * resolved.model.seq_len;
  plan.flops_a = per_token.causal * static_cast<double>(plan.tokens);
  plan.flops_b = per_token.full * static_cast<double>(plan.tokens);
  if (depth == PlanDepth::fit) return plan;
  std::vector<const StageWork*> stages;
  for (const StageWork& work : works) stages.push_back(&work);
  plan.times = pipeline_times(target, stages);
  if (depth == PlanDepth::whole) {
    plan.checks = {"no tensor of a step is touched out of order or after its lease, on one rank of every kind of stage",
                   check_groups(target, kinds)};
    if (topology.size(Axis::pp) > 1) plan.checks.emplace_back("the schedule comes to its end: no stage waits for ever");
  }
  return plan;
}

}  // namespace llmtrain
