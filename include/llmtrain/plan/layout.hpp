// SPDX-License-Identifier: Apache-2.0
/// The plan of a layout: memory by rank class, communication, FLOPs and time of a step; without device or MPI.
#pragma once

#include <string>
#include <vector>

#include "llmtrain/plan/stage.hpp"
#include "llmtrain/schedule/simulate.hpp"

namespace llmtrain {

/// Ranks that hold equally many bytes in every segment.
struct RankClass {
  std::string name;         ///< "first stage", "stages 1-6", ...
  std::vector<int> stages;  ///< of the pipeline
  std::int64_t ranks = 0;
  MemoryPlan memory;
  StageWork work;  ///< of its first stage

  std::int64_t static_bytes() const;  ///< of params, master, moments and grads
  /// Allocated on the device before the first step and to the end: nothing comes later.
  std::int64_t peak_bytes() const { return memory.device_total(); }
};

/// Times of a step, all predicted.
struct StepTimes {
  double seconds = 0;
  double bubble = 0;   ///< share of the stages' time without work, pipeline alone
  double compute = 0;  ///< seconds of the slowest stage's operations
  double waiting = 0;  ///< seconds in which that stage waits for collectives or is slowed down by them
  Exposed exposed;     ///< seconds in which it waits; the bubble is the pipeline's
  std::map<std::string, double> by_operation;  ///< seconds on the slowest stage
  std::vector<double> stages;                  ///< seconds of each one's actions, of equally many micro-batches
};

struct LayoutPlan {
  Deck deck;  ///< resolved
  int ranks = 1;
  Hardware hardware;
  std::vector<RankClass> classes{};
  StepTimes times{};
  double flops_a = 0, flops_b = 0;    ///< of a step on all ranks, by both conventions
  std::int64_t tokens = 0;            ///< of a step
  std::vector<std::string> checks{};  ///< what was proved on the way
  bool fits = true;

  Topology topology() const { return topology_on(deck, ranks, hardware); }
  std::int64_t micro_batches() const;
  const RankClass& largest() const;  ///< the class with the highest peak
  double mfu(double flops) const;    ///< share of the hardware's peak; 0 if that is unknown
};

/// How much is looked at.
enum class PlanDepth {
  fit,    ///< memory of the stages that need most
  rank,   ///< and times: what a search compares
  whole,  ///< all classes, totals, collectives, static checks
};

/// Error(configuration) where the deck's rules do not allow so many ranks; Error(internal) where a static check fails.
LayoutPlan plan_layout(const Deck& resolved, int ranks, const Hardware& hardware, PlanDepth depth);

/// Seconds of a whole pipeline's actions put together: ends of stages, bubble.
StepTimes pipeline_times(const PlanTarget& target, const std::vector<const StageWork*>& stages);

}  // namespace llmtrain
