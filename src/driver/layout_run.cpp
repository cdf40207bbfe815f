// SPDX-License-Identifier: Apache-2.0
/// Builds a layout, runs it, puts its sections together and takes it down again.
#include "llmtrain/driver/layout_run.hpp"

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/digest.hpp"
#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/launch.hpp"
#include "llmtrain/driver/micro_batches.hpp"
#include "llmtrain/driver/trainer.hpp"

namespace llmtrain {

std::string layout_text(const Deck& deck, const Topology& topology) {
  const ParallelConfig& p = deck.parallel;
  const ScheduleConfig& s = deck.schedule;
  const int ranks = topology.ranks(), data = topology.size(data_axes), shards = topology.size(Axis::shard);
  std::string text = fmt::format("{} rank{}: tensor {}{}, pipeline {}", ranks, ranks == 1 ? "" : "s", p.tensor,
                                 p.tensor > 1 && p.sequence ? " with sequence" : "", p.pipeline);
  if (p.pipeline > 1) {
    const char* const kind = s.kind == ScheduleKind::gpipe         ? "gpipe"
                             : s.kind == ScheduleKind::one_f_one_b ? "1f1b"
                                                                   : "interleaved";
    text += fmt::format(" ({}{})", kind, s.chunks > 1 ? fmt::format(" of {} chunks", s.chunks) : "");
  }
  text += fmt::format(", data {}{} (ZeRO-{}), {} micro-batches of {}", data,
                      shards < data ? fmt::format(" in shards of {}", shards) : "", p.zero,
                      micro_batches_of(deck, topology), s.micro_batch);
  if (s.recompute == Recompute::block) text += ", blocks computed again";
  if (s.recompute == Recompute::selective) text += ", parts of blocks computed again";
  return text;
}

StepNumbers run_steps(const LayoutRun& run, std::int64_t steps, const SectionVisitors& visit) {
  Deck deck = run.deck;
  deck.data.eval_batches = 1;
  const Place& place = run.place;
  Parts parts(deck, place, run.device, measure(deck, place.topology, place.rank, run.device.kind()).scratch_bytes);
  return or_end_job(place.world, [&] {
    const std::unique_ptr<Loader> loader = make_loader(deck, place, run.data, run.masked_token);
    Timers timers;
    Trainer trainer(parts, *loader, timers);
    if (run.part.begin) {
      run.part.begin(parts);
    } else {
      parts.params.initialise(parts.kernels, parts.stream, static_cast<std::uint64_t>(deck.run.seed));
    }
    visit_weights(parts, visit.initial);
    const std::int64_t first = run.part.first;
    const StepTotals totals = trainer.gradients(first + 1);
    visit_gradients(parts, 1.0 / totals.tokens, visit.gradients);
    StepNumbers numbers;
    for (std::int64_t n = first + 1; n <= first + steps; ++n) {
      trainer.step(n);
      const StepScalars scalars = trainer.result();
      numbers.loss.push_back(scalars.loss);
      numbers.gradient_norm.push_back(scalars.gradient_norm);
      numbers.lr.push_back(scalars.lr);
    }
    visit_weights(parts, visit.parameters);
    numbers.evaluation = trainer.evaluate(*make_loader(deck, place, run.data, run.masked_token));
    if (run.part.end) run.part.end(parts);
    return numbers;
  });
}

LayoutNumbers run_layout(const LayoutRun& run, std::int64_t steps) {
  LayoutNumbers numbers;
  numbers.layout = layout_text(run.deck, run.place.topology);
  numbers.compute = run.deck.precision.compute;
  numbers.linear = run.deck.precision.linear;
  numbers.adam_eps = run.deck.optimizer.eps;
  const auto keep_in = [&](std::vector<SectionValues>& sections) {
    return [&](const Section& section, std::span<const double> values) {
      if (run.place.rank == 0) sections.push_back({section.name, {values.begin(), values.end()}});
    };
  };
  const auto digest = [&](const Section&, std::span<const double> values) {
    numbers.initial.push_back(digest_of(values.data(), values.size_bytes()));
  };
  static_cast<StepNumbers&>(numbers) =
      run_steps(run, steps, {digest, keep_in(numbers.gradients), keep_in(numbers.parameters)});
  return numbers;
}

}  // namespace llmtrain
