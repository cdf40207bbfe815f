// SPDX-License-Identifier: Apache-2.0
/// Dry runs on the trace back end: a rank goes through as few micro-batches as show every kind of them, and the whole step
/// follows from these, so that cost does not grow with micro-batches. What a run allocates is found in the same way.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "llmtrain/backend/trace.hpp"
#include "llmtrain/driver/parts.hpp"

namespace llmtrain {

/// How a step of many micro-batches follows from a shorter one: after `few` of them (a multiple of `period` less than the
/// step has, or all) each further `period` is as the one before.
struct Stretch {
  std::int64_t micro_batches = 1;
  std::int64_t few = 1;
  std::int64_t period = 1;

  std::int64_t more() const { return (micro_batches - few) / period; }  ///< periods left out
  /// Of `values` in the order of a step of `few`, the one that stands for number `k` in the whole step; each micro-batch
  /// has `chunks` of them.
  double at(const std::vector<double>& values, std::int64_t k, int chunks) const;
};
Stretch stretch_of(const Deck& deck, const Topology& topology);

/// The object graph of a rank without memory, in a step of so many micro-batches.
struct DryRank {
  DryRank(const Deck& deck, const Topology& topology, int rank, DeviceKind target, std::int64_t micro_batches,
          std::int64_t scratch_bytes = 0);
  void step(OpObserver& observer);  ///< one that another step came before

  std::unique_ptr<Device> device;
  Parts parts;
};

/// What a step takes, found without executing it.
struct Measured {
  std::int64_t scratch_bytes = 0;  ///< for Parts
  MemoryPlan plan;                 ///< of Parts with that scratch: every byte that a run allocates
  TraceRecorder trace;             ///< operations and collectives of one step
};
/// `deck` must be resolved. Error(internal) for a hazard.
Measured measure(const Deck& deck, const Topology& topology, int rank, DeviceKind target);

}  // namespace llmtrain
