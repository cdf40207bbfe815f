// SPDX-License-Identifier: Apache-2.0
/// What would make a layout fit, or faster: one key changed at a time, planned and compared.
#include <algorithm>
#include <functional>
#include <optional>

#include "llmtrain/base/text.hpp"
#include "llmtrain/plan/balance.hpp"
#include "llmtrain/plan/report.hpp"

namespace llmtrain {

namespace {

struct Change {
  std::string text;
  std::function<void(Deck&)> apply;
};

std::vector<Change> changes_of(const Deck& deck) {
  std::vector<Change> changes;
  if (deck.precision.keep_fp8) {
    changes.push_back({"precision.keep_fp8=false", [](Deck& d) { d.precision.keep_fp8 = false; }});
  }
  if (deck.parallel.zero >= 2 && deck.parallel.exchange > 1) {
    changes.push_back({"parallel.exchange=1", [](Deck& d) { d.parallel.exchange = 1; }});
  }
  constexpr auto shard_weights = [](Deck& d) {
    d.parallel.zero = 3;
    d.parallel.persistence = std::min(d.parallel.persistence, ParallelConfig{}.persistence);
  };
  std::string sharded = "parallel.zero=3";
  if (const std::int64_t few = ParallelConfig{}.persistence; deck.parallel.persistence > few) {
    const std::string lower = fmt::format("parallel.persistence={}", few);
    if (deck.parallel.zero == 3) changes.push_back({lower, shard_weights});
    sharded += " " + lower;
  }
  for (int zero = deck.parallel.zero + 1; zero < 3; ++zero) {
    changes.push_back({fmt::format("parallel.zero={}", zero), [zero](Deck& d) { d.parallel.zero = zero; }});
  }
  if (deck.parallel.zero < 3) changes.push_back({sharded, shard_weights});
  if (deck.schedule.recompute == Recompute::none) {
    changes.push_back({"schedule.recompute=selective", [](Deck& d) { d.schedule.recompute = Recompute::selective; }});
  }
  if (deck.schedule.recompute != Recompute::block) {
    changes.push_back({"schedule.recompute=block", [](Deck& d) { d.schedule.recompute = Recompute::block; }});
  }
  if (deck.schedule.micro_batch > 1) {
    const std::int64_t half = deck.schedule.micro_batch / 2;
    changes.push_back(
        {fmt::format("schedule.micro_batch={}", half), [half](Deck& d) { d.schedule.micro_batch = half; }});
  }
  const int tensor = deck.parallel.tensor * 2, pipeline = deck.parallel.pipeline * 2;
  changes.push_back({fmt::format("parallel.tensor={}", tensor), [tensor](Deck& d) { d.parallel.tensor = tensor; }});
  changes.push_back({fmt::format("parallel.pipeline={}", pipeline), [pipeline](Deck& d) {
                       d.parallel.pipeline = pipeline;
                       d.parallel.stage_layers.clear();
                     }});
  changes.push_back(
      {sharded + " parallel.exchange=1 schedule.recompute=block schedule.micro_batch=1", [shard_weights](Deck& d) {
         shard_weights(d);
         d.parallel.exchange = 1;
         d.schedule.recompute = Recompute::block;
         d.schedule.micro_batch = 1;
       }});
  return changes;
}

/// Nothing where the deck's rules do not allow it.
std::optional<LayoutPlan> try_plan(const Deck& deck, int ranks, const Hardware& hardware) {
  try {
    return plan_layout(deck, ranks, hardware, PlanDepth::fit);
  } catch (const Error& error) {
    if (error.code() != ExitCode::configuration) throw;
    return std::nullopt;
  }
}

/// A line about a deck that is faster than the plan's and fits; empty where it is not.
std::string faster_line(const LayoutPlan& plan, const Deck& deck, const std::string& change, const std::string& why) {
  const LayoutPlan other = plan_layout(deck, plan.ranks, plan.hardware, PlanDepth::rank);
  const double saved = 1 - other.times.seconds / plan.times.seconds;
  if (!other.fits || saved < 0.01) return "";
  return fmt::format("\nfaster: {} takes {:.4g} s (-{:.1f} %): {}\n", change, other.times.seconds, 100 * saved, why);
}

std::string faster_layers(const LayoutPlan& plan) {
  if (plan.deck.parallel.pipeline == 1) return "";
  const EndCosts ends = end_costs(plan.deck, plan.times.stages);
  const std::optional<Deck> deck = balanced_deck(plan.deck, ends);
  if (!deck) return "";
  return faster_line(plan, *deck,
                     fmt::format("parallel.stage_layers=[{}]", fmt::join(deck->parallel.stage_layers, ",")),
                     fmt::format("the head takes as long as {:.1f} layers", ends.head));
}

std::string faster_copies(const LayoutPlan& plan) {
  if (plan.deck.precision.linear != LinearProducts::fp8 || plan.deck.precision.keep_fp8) return "";
  Deck deck = plan.deck;
  deck.precision.keep_fp8 = true;
  return faster_line(plan, deck, "precision.keep_fp8=true", "there is memory for the fp8 copies of weights");
}

}  // namespace

std::string remedies(const LayoutPlan& plan) {
  std::string text;
  const double room = plan.hardware.memory - plan.hardware.reserved;
  for (const Change& change : changes_of(plan.deck)) {
    Deck deck = plan.deck;
    change.apply(deck);
    const std::optional<LayoutPlan> other = try_plan(deck, plan.ranks, plan.hardware);
    if (!other || !other->fits) continue;
    text += fmt::format("  {:<40} needs {} of {}\n", change.text, human_bytes(other->largest().peak_bytes()),
                        human_bytes(static_cast<std::int64_t>(room)));
  }
  return text;
}

std::string faster(const LayoutPlan& plan) { return faster_layers(plan) + faster_copies(plan); }

}  // namespace llmtrain
