// SPDX-License-Identifier: Apache-2.0
/// Groups of ranks along the axes of the topology, made by MPI_Comm_split.
#pragma once

#include <string>
#include <vector>

#include "llmtrain/backend/device.hpp"

namespace llmtrain {

/// The group of `members` (world ranks in group order, `world_rank` among them). With a null `world` (trace back end)
/// the group has no MPI communicator. Collective over `world`: every rank calls it with its own group of this name.
Group make_group(std::string name, std::vector<int> members, int world_rank, const MpiComm& world);

}  // namespace llmtrain
