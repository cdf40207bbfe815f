// SPDX-License-Identifier: Apache-2.0
/// The object graph of one rank, built in order of dependence on any device: what the Trainer runs, and what the trace
/// back end measures.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "llmtrain/backend/communicator.hpp"
#include "llmtrain/config/deck.hpp"
#include "llmtrain/memory/arena.hpp"
#include "llmtrain/memory/plan.hpp"
#include "llmtrain/memory/scratch.hpp"
#include "llmtrain/model/stage.hpp"
#include "llmtrain/optim/adamw.hpp"
#include "llmtrain/parallel/stores.hpp"
#include "llmtrain/schedule/schedule.hpp"
#include "llmtrain/topology/topology.hpp"

namespace llmtrain {

/// One rank of a layout.
struct Place {
  Topology topology;
  int rank = 0;   ///< in the world
  MpiComm world;  ///< null where nothing is communicated (trace)
};

class Parts {
 public:
  /// `deck` must be resolved (driver/resolve.hpp). `scratch_bytes` comes from measure(); 0 measures the need instead.
  /// Collective over the world.
  Parts(const Deck& deck, const Place& place, Device& device, std::int64_t scratch_bytes);
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  std::int64_t micro_batches() const;  ///< of one data-parallel rank in a step
  Context context() { return {kernels, stream, *scratch}; }

  const Deck deck;
  const Place place;
  Device& device;
  Kernels& kernels;
  const Stream stream;  ///< compute

  const ParamTable table;
  const StoreShape shape;
  const std::vector<Action> actions;
  MemoryPlan plan;
  ParamStore params;
  GradStore grads;
  AdamW optimizer;
  Stage stage;

 private:
  struct BatchSlots {
    Slot tokens, targets, weights, positions, order;
    Slot samples;  ///< only with dropout
  };
  /// Everything in the plan that is no module's own.
  struct Requests {
    std::vector<BatchSlots> batches;
    Slot totals, scalars, scratch, kernels_workspace, data_workspace, world_workspace;
  };
  Requests request(std::int64_t scratch_bytes);
  void bind();
  std::unique_ptr<Communicator> communicator(const std::string& name, std::vector<int> members, Slot workspace);
  const Requests requests_;

 public:
  const Arena arena;
  std::unique_ptr<ScratchStack> scratch;
  std::unique_ptr<Communicator> data;   ///< data-parallel group; null in a group of one
  std::unique_ptr<Communicator> world;  ///< all ranks; null in a world of one
  Tensor totals;                        ///< StepTotals
  Tensor scalars;                       ///< StepScalars
  std::vector<Batch> batches;           ///< device memory of micro-batches, one an activation slot
};

}  // namespace llmtrain
