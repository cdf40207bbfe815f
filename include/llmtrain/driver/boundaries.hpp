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

/// What crosses a boundary.
struct BoundaryTensor {
  std::int64_t tokens = 0;  ///< rows, of this rank
  std::int64_t hidden = 0;
  DType dtype = DType::fp32;
};

class Boundaries {
 public:
  /// Tensors for the actions that `counts` were made from; `shape` and the place of `rank` say which channels exist.
  Boundaries(const BoundaryCounts& counts, const ScheduleShape& shape, const Topology& topology, int rank,
             const BoundaryTensor& tensor, DeviceKind kind, MemoryPlan& plan);
  /// Takes its memory and makes the channels. Collective over `world`.
  void bind(const Arena& arena, Device& device, const MpiComm& world);

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
  /// The making of a channel, or of none while others make theirs.
  struct Round {
    bool backward = false;
    std::vector<int> members;  ///< world ranks
    Channel Boundaries::*channel = nullptr;
  };
  Boundary& boundary(Use& use, int number) { return use.tensors.at(static_cast<std::size_t>(number)); }
  Tensor ready(Use& use, int number, Stream stream);

  int rank_;
  Use inputs_, outputs_, gradients_;
  Channel outputs_out_, inputs_in_, gradients_out_, gradients_in_;
  /// Making and ending a channel takes both ends, and in another order a ring stands still.
  std::vector<Round> rounds_;
};

}  // namespace llmtrain
