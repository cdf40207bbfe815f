// SPDX-License-Identifier: Apache-2.0
/// The enumeration of layouts, and what need not be looked at.
#include "llmtrain/plan/search.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "llmtrain/config/check.hpp"
#include "llmtrain/driver/micro_batches.hpp"
#include "llmtrain/driver/parts.hpp"
#include "llmtrain/metrics/flops.hpp"
#include "llmtrain/plan/balance.hpp"

namespace llmtrain {

namespace {

constexpr std::int64_t most_micro_batch = 16;
constexpr int most_chunks = 8;
constexpr double most_uneven = 1.05;   ///< largest piece of an interleaved pipeline, over the mean
constexpr double balance_gain = 1.15;  ///< layers dealt by time make a step at most so many times as fast
constexpr double copies_gain = 1.1;    ///< and fp8 copies of weights that are kept

/// What the largest rank holds at least: everything in equal parts, whole over the data ranks where ZeRO leaves it so.
double least_bytes(const Deck& deck, int ranks) {
  const StoreTypes types = store_types(deck.precision);
  const auto count = static_cast<double>(count_parameters(deck.model).total);
  const double model = static_cast<double>(deck.parallel.tensor) * deck.parallel.pipeline;
  const double data = ranks / model;
  const int zero = data > 1 ? deck.parallel.zero : 0;
  const auto held = [&](DType type, int sharded_from) {
    return static_cast<double>(size_of(type)) / (zero >= sharded_from ? data : 1);
  };
  double bytes = held(types.weights, 3) + held(types.gradients, 2) + 2 * held(types.moments, 1);
  if (types.masters != types.weights) bytes += held(types.masters, 1);
  return count / model * bytes;
}

class Searcher {
 public:
  Searcher(const Deck& deck, int ranks, const Hardware& hardware) : deck_(deck), ranks_(ranks), hardware_(hardware) {
    deck_.precision.keep_fp8 = false;                                                            // tried at the end
    if (deck.schedule.recompute_modules.empty()) std::erase(recomputes_, Recompute::selective);  // nothing to do
  }

  Search run() {
    for (int tensor = 1; tensor <= std::min(ranks_, hardware_.ranks_a_node); ++tensor) {
      if (ranks_ % tensor != 0) continue;
      for (int pipeline = 1; pipeline <= std::min<std::int64_t>(ranks_ / tensor, deck_.model.layers); ++pipeline) {
        if (ranks_ / tensor % pipeline == 0) try_axes(tensor, pipeline);
      }
    }
    rank();
    balance_stages();
    rank();
    keep_copies();
    rank();
    return std::move(search_);
  }

 private:
  void rank() {
    std::stable_sort(search_.ranked.begin(), search_.ranked.end(),
                     [](const Candidate& a, const Candidate& b) { return a.times.seconds < b.times.seconds; });
  }

  /// Of the pipelines that might come first by it, also with layers dealt by time: the head takes as long as some layers.
  void balance_stages() {
    try_changed(balance_gain, [](const Candidate& c) -> std::optional<Deck> {
      if (c.deck.parallel.pipeline == 1) return std::nullopt;
      return balanced_deck(c.deck, end_costs(c.deck, c.times.stages));
    });
  }

  /// Of the layouts that might come first by it, also with the fp8 copies of weights kept.
  void keep_copies() {
    if (deck_.precision.linear != LinearProducts::fp8) return;
    try_changed(copies_gain, [](const Candidate& c) -> std::optional<Deck> {
      Deck deck = c.deck;
      deck.precision.keep_fp8 = true;
      return deck;
    });
  }

  /// Of ranked layouts, as changed by `change`, those that it makes the fastest if it makes them `gain` times as fast.
  template <class Change>
  void try_changed(double gain, const Change& change) {
    std::vector<Deck> decks;
    for (const Candidate& c : search_.ranked) {
      if (c.times.seconds > gain * search_.ranked.front().times.seconds) break;
      if (const std::optional<Deck> changed = change(c)) decks.push_back(*changed);
    }
    for (const Deck& deck : decks) try_layout(deck, topology_on(deck, ranks_, hardware_));
  }

  void try_axes(int tensor, int pipeline) {
    Deck deck = deck_;
    deck.parallel.tensor = tensor;
    deck.parallel.pipeline = pipeline;
    deck.parallel.shard = 0;
    deck.parallel.stage_layers.clear();
    for (int chunks = 1; chunks <= most_chunks && (chunks == 1 || pipeline > 1); ++chunks) {
      const std::int64_t layers = deck_.model.layers, pieces = std::int64_t{pipeline} * chunks;
      if (layers < pieces) break;
      const std::int64_t most = (layers + pieces - 1) / pieces;  // in a piece
      if (chunks > 1 && static_cast<double>(most * pieces) > most_uneven * static_cast<double>(layers)) continue;
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

  /// Of what saves memory and costs time, only as much as is needed. With one micro-batch a rank, ZeRO-2 sends as much as
  /// ZeRO-1, and where copy engines take it is faster.
  void try_savings(Deck deck) {
    const Topology topology = topology_on(deck, ranks_, hardware_);
    const bool data = topology.size(data_axes) > 1, once = micro_batches_of(deck, topology) == 1;
    const int first = data ? 1 : 0, last = data ? 2 : 0;
    search_.slower += (data ? 3 : 1) * std::ssize(recomputes_);  // each that is looked at is taken off
    bool fits = false;
    for (int zero = first; zero <= last && (!fits || once); ++zero) {
      deck.parallel.zero = zero;
      fits = try_recomputes(deck, topology) || fits;
    }
    if (!data || fits) return;
    deck.parallel.zero = 3;
    try_whole_weights(deck, topology);
  }

  /// The least recompute that fits; true if that is none.
  bool try_recomputes(Deck& deck, const Topology& topology) {
    for (const Recompute recompute : recomputes_) {
      deck.schedule.recompute = recompute;
      --search_.slower;
      if (try_layout(deck, topology)) return recompute == Recompute::none;
    }
    return false;
  }

  /// ZeRO-3: the least recompute that fits, with as many weights whole as fit, which are not gathered at every use; and more
  /// recompute where that makes room for more of them.
  void try_whole_weights(Deck& deck, const Topology& topology) {
    const std::int64_t least = std::min(deck_.parallel.persistence, ParallelConfig{}.persistence);
    const std::vector<std::int64_t> sizes = storage_sizes({deck, topology, hardware_}, rank_of_stage(topology, 0));
    std::int64_t whole = -1;  // of the last one that fitted; -1: none did
    for (const Recompute recompute : recomputes_) {
      deck.schedule.recompute = recompute;
      deck.parallel.persistence = least;
      --search_.slower;
      if (whole < 0) {
        if (!try_layout(deck, topology)) continue;
        whole = least;
      }
      for (const std::int64_t size : sizes) {
        if (size <= whole) break;
        deck.parallel.persistence = size;
        if (try_layout(deck, topology)) whole = size;  // those after it are smaller
      }
      if (whole >= sizes.front()) return;
    }
  }

  /// By what needs no dry run: the formula, then all but what layers take for a moment.
  bool surely_too_large(const Deck& deck, const Topology& topology) const {
    if (hardware_.memory == 0) return false;
    const double room = hardware_.memory - hardware_.reserved;
    if (least_bytes(deck, ranks_) > room) return true;
    const MemoryPlan memory = stage_memory({deck, topology, hardware_}, rank_of_stage(topology, 0), 1, StepLength::few);
    return static_cast<double>(memory.device_total()) > room;
  }

  /// True if it fits.
  bool try_layout(const Deck& deck, const Topology& topology) {
    ++search_.tried;
    if (surely_too_large(deck, topology)) {
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

  Deck deck_;
  int ranks_;
  const Hardware& hardware_;
  std::vector<Recompute> recomputes_{Recompute::none, Recompute::selective, Recompute::block};  ///< the least first
  Search search_;
};

}  // namespace

Search search_layouts(const Deck& resolved, int ranks, const Hardware& hardware) {
  return Searcher(resolved, ranks, hardware).run();
}

}  // namespace llmtrain
