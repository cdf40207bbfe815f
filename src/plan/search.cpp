// SPDX-License-Identifier: Apache-2.0
/// The enumeration of layouts, and what need not be looked at.
#include "llmtrain/plan/search.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "llmtrain/config/check.hpp"
#include "llmtrain/metrics/flops.hpp"

namespace llmtrain {

namespace {

constexpr std::int64_t most_micro_batch = 16;
constexpr int most_chunks = 8;

/// What a rank holds at least: weights, and everything else in equal parts.
double least_bytes(const Deck& deck, int ranks) {
  const auto count = static_cast<double>(count_parameters(deck.model).total);
  const double model = static_cast<double>(deck.parallel.tensor) * deck.parallel.pipeline;
  const double data = ranks / model;
  const bool wide = deck.precision.compute != Compute::bf16;
  const double weight = wide ? (deck.precision.compute == Compute::fp64 ? 8 : 4) : 2;
  const int zero = data > 1 ? deck.parallel.zero : 0;
  const double whole = (zero < 3 ? weight : 0) + (zero < 2 ? 4 : 0);
  return count / model * whole + count / (model * data) * (wide ? 8 : 12);
}

class Searcher {
 public:
  Searcher(const Deck& deck, int ranks, const Hardware& hardware) : deck_(deck), ranks_(ranks), hardware_(hardware) {}

  Search run() {
    for (int tensor = 1; tensor <= std::min(ranks_, hardware_.ranks_a_node); ++tensor) {
      if (ranks_ % tensor != 0) continue;
      for (int pipeline = 1; pipeline <= std::min<std::int64_t>(ranks_ / tensor, deck_.model.layers); ++pipeline) {
        if (ranks_ / tensor % pipeline == 0) try_axes(tensor, pipeline);
      }
    }
    std::stable_sort(search_.ranked.begin(), search_.ranked.end(),
                     [](const Candidate& a, const Candidate& b) { return a.times.seconds < b.times.seconds; });
    return std::move(search_);
  }

 private:
  void try_axes(int tensor, int pipeline) {
    Deck deck = deck_;
    deck.parallel.tensor = tensor;
    deck.parallel.pipeline = pipeline;
    deck.parallel.shard = 0;
    deck.parallel.stage_layers.clear();
    for (int chunks = 1; chunks <= most_chunks && (chunks == 1 || pipeline > 1); ++chunks) {
      if (deck_.model.layers < std::int64_t{pipeline} * chunks) break;
      if (chunks > 1 && deck_.model.layers % (std::int64_t{pipeline} * chunks) != 0) continue;
      deck.schedule.chunks = chunks;
      deck.schedule.kind = chunks > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
      for (std::int64_t micro_batch = 1; micro_batch <= most_micro_batch; micro_batch *= 2) {
        deck.schedule.micro_batch = micro_batch;
        if (allowed(deck)) try_savings(deck);
      }
    }
  }

  bool allowed(const Deck& deck) const {
    try {
      check_deck(deck, {.ranks = ranks_});
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  /// Of what saves memory and costs time, only as much as is needed.
  void try_savings(Deck deck) {
    const bool data = ranks_ > deck.parallel.tensor * deck.parallel.pipeline;
    for (int zero = data ? 1 : 0; zero <= (data ? 3 : 0); ++zero) {
      deck.parallel.zero = zero;
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block}) {
        deck.schedule.recompute = recompute;
        if (!try_layout(deck)) continue;
        if (zero == 3) try_persistence(deck);
        const int left = 2 - static_cast<int>(recompute);
        search_.slower += left + (recompute == Recompute::none && data ? 3 * (3 - zero) : 0);
        if (recompute == Recompute::none) return;
        break;
      }
    }
  }

  /// ZeRO-3 with as many weights whole as fit: those that are too large for it are gathered at every use.
  void try_persistence(Deck deck) {
    const Topology topology(deck, ranks_);
    for (const std::int64_t size : storage_sizes({deck, topology, hardware_}, rank_of_stage(topology, 0))) {
      if (size <= deck_.parallel.persistence) return;
      deck.parallel.persistence = size;
      if (try_layout(deck)) return;
    }
  }

  /// By what needs no dry run: the formula, then all but what layers take for a moment.
  bool surely_too_large(const Deck& deck) const {
    if (hardware_.memory == 0) return false;
    const double room = hardware_.memory - hardware_.reserved;
    if (least_bytes(deck, ranks_) > room) return true;
    const Topology topology(deck, ranks_);
    const MemoryPlan memory = stage_memory({deck, topology, hardware_}, rank_of_stage(topology, 0), 1, StepLength::few);
    return static_cast<double>(memory.device_total()) > room;
  }

  /// True if it fits.
  bool try_layout(const Deck& deck) {
    ++search_.tried;
    if (surely_too_large(deck)) {
      ++search_.too_large;
      return false;
    }
    const LayoutPlan plan = plan_layout(deck, ranks_, hardware_, PlanDepth::rank);
    if (!plan.fits) {
      ++search_.too_large;
      return false;
    }
    search_.ranked.push_back({deck, plan.largest().peak_bytes(), plan.times, plan.mfu(plan.flops_a)});
    return true;
  }

  const Deck& deck_;
  int ranks_;
  const Hardware& hardware_;
  Search search_;
};

}  // namespace

Search search_layouts(const Deck& resolved, int ranks, const Hardware& hardware) {
  return Searcher(resolved, ranks, hardware).run();
}

}  // namespace llmtrain
