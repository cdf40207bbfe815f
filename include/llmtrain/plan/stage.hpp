// SPDX-License-Identifier: Apache-2.0
/// One pipeline stage, dry-run with as few micro-batches as show every kind of them, and stretched to the whole step: cost
/// does not grow with micro-batches or ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "llmtrain/config/deck.hpp"
#include "llmtrain/config/hardware.hpp"
#include "llmtrain/memory/plan.hpp"
#include "llmtrain/parallel/exposed.hpp"
#include "llmtrain/plan/costs.hpp"
#include "llmtrain/plan/group_check.hpp"
#include "llmtrain/topology/topology.hpp"

namespace llmtrain {

/// A layout to be planned; the deck must be resolved for the hardware's device.
struct PlanTarget {
  const Deck& deck;
  const Topology& topology;
  const Hardware& hardware;
};

/// The deck's layout on nodes that are filled one after the other.
Topology topology_on(const Deck& deck, int ranks, const Hardware& hardware);

/// One collective of a step on a rank.
struct CollectiveTotal {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  ///< of the larger of source and destination, added up
  double sent = 0;         ///< by this rank in a ring
  GroupPlacement placement;
};

/// What one rank of a stage does in a step.
struct StageWork {
  double flops = 0;  ///< of matrix products and attention, with what is computed again
  double bytes = 0;  ///< of all other operations' operands
  std::map<std::pair<std::string, std::string>, CollectiveTotal> collectives;  ///< by group and operation
  std::vector<double> forwards, backwards;  ///< seconds, in order, of the short step; all waiting but for neighbours
  double tail = 0;                          ///< seconds of last reductions and the update
  std::map<std::string, double> by_operation, by_group;  ///< seconds of the short step
  Exposed exposed;                                       ///< of it, but for what neighbours make this rank wait
  std::int64_t scratch_bytes = 0;                        ///< for Parts
};

/// What to find besides the times.
struct StageChecks {
  bool totals = false;   ///< flops, bytes and collectives of the whole step
  bool hazards = false;  ///< Error(internal) for a tensor touched out of order or after its lease
};

/// The rank of a stage that stands for all: coordinate 0 of every other axis.
int rank_of_stage(const Topology& topology, int stage);

StageWork trace_stage(const PlanTarget& target, int rank, const StageChecks& checks);

/// Which step memory is planned for.
enum class StepLength {
  whole,
  few,  ///< as few micro-batches as a trace has: the same bytes but for a prefetch that looks further ahead than these
};

/// Every byte that a rank allocates, exactly.
MemoryPlan stage_memory(const PlanTarget& target, int rank, std::int64_t scratch_bytes, StepLength length);

/// Elements of a rank's storage tensors, each size once, the largest first.
std::vector<std::int64_t> storage_sizes(const PlanTarget& target, int rank);

/// What a rank issues in its groups in a step.
IssuedBatches issued_batches(const PlanTarget& target, int rank);

}  // namespace llmtrain
