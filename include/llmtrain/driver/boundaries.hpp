// SPDX-License-Identifier: Apache-2.0
/// Boundaries: the tensors at the ends of a rank's stages, and the channels on which they come and go.
#pragma once

#include <memory>
#include <vector>

#include "llmtrain/backend/communicator.hpp"
#include "llmtrain/memory/arena.hpp"
#include "llmtrain/model/stage.hpp"
#include "llmtrain/schedule/schedule.hpp"
#include "llmtrain/topology/topology.hpp"

namespace llmtrain {

class Boundaries {
 public:
  /// Tensors [tokens, hidden] of `dtype` for the actions that `counts` were made from; `shape` says which channels exist.
  Boundaries(const BoundaryCounts& counts, const ScheduleShape& shape, std::int64_t tokens, std::int64_t hidden,
             DType dtype, DeviceKind kind, MemoryPlan& plan);
  /// Takes its memory and makes the channels. Collective over `world`.
  void bind(const Arena& arena, Device& device, const Topology& topology, int rank, const MpiComm& world);

  /// Ends the channels, once what is in flight has arrived: before the arena goes. Collective over `world`.
  void close();

  /// Starts a send or a receive, after the work issued on `stream` so far.
  void start(const Action& transfer, Stream stream);
  /// What a forward or backward works on. Later work on `stream` runs when it has arrived, and what it will overwrite has
  /// been sent.
  StageEnds ends(const Action& work, Stream stream);

 private:
  struct Boundary {
    Tensor tensor;
    Event transferred;  ///< by the last transfer that was started
  };
  struct Use {
    std::vector<Slot> slots;
    std::vector<Boundary> tensors;
  };
  /// A channel between two stages: rank 0 of its group sends, rank 1 receives.
  struct Channel {
    Slot workspace;
    std::unique_ptr<Communicator> communicator;
  };
  Boundary& boundary(Use& use, int number) { return use.tensors.at(static_cast<std::size_t>(number)); }
  Tensor ready(Use& use, int number, Stream stream);

  ScheduleShape shape_;
  Use inputs_, outputs_, gradients_;
  Channel outputs_out_, inputs_in_, gradients_out_, gradients_in_;
  /// In the order in which they were made: making and ending one takes both ends, and in another order a ring stands still.
  std::vector<Channel Boundaries::*> made_;
};

}  // namespace llmtrain
