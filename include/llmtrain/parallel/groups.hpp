// SPDX-License-Identifier: Apache-2.0
/// Groups of ranks along the axes of the topology, made by MPI_Comm_split.
#pragma once

#include <string>
#include <vector>

#include "llmtrain/backend/device.hpp"
#include "llmtrain/topology/topology.hpp"

namespace llmtrain {

/// The group of `members` (world ranks in group order, `world_rank` among them). With a null `world` (trace back end)
/// the group has no MPI communicator. Collective over `world`: every rank calls it with its own group of this name.
Group make_group(std::string name, std::vector<int> members, int world_rank, const MpiComm& world);

/// The two ends of a channel of the rank's pipeline, sender first. Boundary b lies between stages b and b + 1, the last one
/// between the last stage and the first; activations go up, gradients down (`backward`).
std::vector<int> boundary_members(const Topology& topology, int rank, int boundary, bool backward);

/// The order in which a stage makes the channels of its boundaries: in each round the boundaries of all stages have no
/// stage in common; -1 where this one has none. `ring`: the last boundary is there too.
std::vector<int> boundary_rounds(int stage, int stages, bool ring);

/// First and last stage of the rank's pipeline (a tied weight); the rank alone where it is on neither.
std::vector<int> tied_members(const Topology& topology, int rank);

}  // namespace llmtrain
