// SPDX-License-Identifier: Apache-2.0
/// The object graph of one rank, built in order of dependence on any device: what the Trainer runs, and what the trace
/// back end measures.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "llmtrain/backend/communicator.hpp"
#include "llmtrain/backend/hazards.hpp"
#include "llmtrain/config/deck.hpp"
#include "llmtrain/driver/boundaries.hpp"
#include "llmtrain/memory/arena.hpp"
#include "llmtrain/memory/plan.hpp"
#include "llmtrain/memory/scratch.hpp"
#include "llmtrain/model/stage.hpp"
#include "llmtrain/optim/adamw.hpp"
#include "llmtrain/parallel/fp8_weights.hpp"
#include "llmtrain/parallel/stores.hpp"
#include "llmtrain/schedule/schedule.hpp"
#include "llmtrain/topology/topology.hpp"

namespace llmtrain {

/// Types of weights, masters, gradients and moments by `precision`.
StoreTypes store_types(const PrecisionConfig& precision);

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
  ~Parts();
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  std::int64_t micro_batches() const;  ///< of one data-parallel rank in a step
  /// The largest piece of memory that holds nothing before the first state is loaded (uint8). Not what kernels keep
  /// between calls: a library's workspace has counters in it.
  Tensor largest_free() const;
  Context context() {
    return {kernels, stream, *scratch, tensor_group(),
            deck.precision.linear == LinearProducts::fp8 ? &fp8_weights : nullptr};
  }
  /// Memory of the micro-batch that a forward or backward works on.
  Batch& batch(const Action& work) {
    return batches[static_cast<std::size_t>(work.chunk)][static_cast<std::size_t>(work.slot)];
  }
  Stage& stage(const Action& work) { return stages[static_cast<std::size_t>(work.chunk)]; }
  /// The storage that another stage holds too, or -1.
  int tied_storage() const;

  const Deck deck;
  const Place place;
  Device& device;
  Kernels& kernels;
  const Stream stream;  ///< compute

  const ScheduleShape pipeline;
  const std::vector<PieceLeases> pieces;  ///< of this rank, by chunk
  const ParamTable table;                 ///< of this rank's pieces
  const StoreShape shape;
  const std::vector<Action> actions;
  const PassLeases step_leases;  ///< of the actions
  MemoryPlan plan;
  ParamStore params;
  Fp8Weights fp8_weights;
  GradStore grads;
  AdamW optimizer;
  RopeTable rope;
  std::deque<Stage> stages;  ///< by chunk
  Boundaries boundaries;

 private:
  struct BatchSlots {
    Slot tokens, targets, weights, positions, order;
    Slot samples;  ///< only with dropout
    Slot starts;   ///< only with document masks
  };
  /// Everything in the plan that is no module's own.
  struct Requests {
    std::vector<std::vector<BatchSlots>> batches;
    Slot totals, scalars, scratch, kernels_workspace;
    Slot data_workspace, shard_workspace, replicate_workspace, tensor_workspace, kv_workspace, world_workspace;
    Slot tied_workspace;
    Slot checkpoint_copy;
  };
  std::deque<Stage> make_stages();
  BatchSlots request_batch();
  Requests request(std::int64_t scratch_bytes);
  void bind();
  TensorGroup tensor_group() const;
  Batch bind_batch(const BatchSlots& slots) const;
  std::unique_ptr<Communicator> communicator(const std::string& name, std::vector<int> members, Slot workspace);
  const Requests requests_;

 public:
  const Arena arena;
  std::unique_ptr<ScratchStack> scratch;
  // Null in a group of one.
  std::unique_ptr<Communicator> data;       ///< data-parallel ranks, under ZeRO-0
  std::unique_ptr<Communicator> shard;      ///< those that ZeRO shards over, under ZeRO-1 to 3
  std::unique_ptr<Communicator> replicate;  ///< those with the same chunks
  std::unique_ptr<Communicator> tensor;     ///< tensor-parallel ranks
  std::unique_ptr<Communicator> kv;         ///< those of them with the same heads of K and V, if some but not all
  std::unique_ptr<Communicator> tied;       ///< first and last stage, where both hold a weight
  std::unique_ptr<Communicator> world;      ///< all ranks
  Tensor totals;                            ///< StepTotals
  Tensor scalars;                           ///< StepScalars
  Tensor checkpoint_copy;  ///< host memory of a save in the background; absent without checkpoint.async
  std::vector<std::vector<Batch>> batches;  ///< device memory of micro-batches, by chunk and activation slot

 private:
  std::unique_ptr<HazardChecker> hazards_;  ///< watches the device where debug_checks()
};

}  // namespace llmtrain
