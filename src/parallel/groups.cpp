// SPDX-License-Identifier: Apache-2.0
/// One split a group: the lowest member names the color.
#include "llmtrain/parallel/groups.hpp"

#include <algorithm>

namespace llmtrain {

Group make_group(std::string name, std::vector<int> members, int world_rank, const MpiComm& world) {
  const auto self = std::find(members.begin(), members.end(), world_rank);
  LLMTRAIN_CHECK(self != members.end());
  Group group;
  group.name = std::move(name);
  group.rank = static_cast<int>(self - members.begin());
  if (world) group.comm = world.split(*std::min_element(members.begin(), members.end()), group.rank);
  group.world_ranks = std::move(members);
  return group;
}

namespace {

int rank_of_stage(const Topology& topology, int rank, int stage) {
  Coordinates at = topology.coordinates(rank);
  at.pp = stage;
  return topology.rank(at);
}

}  // namespace

std::vector<int> boundary_members(const Topology& topology, int rank, int boundary, bool backward) {
  const int stages = topology.size(Axis::pp);
  std::vector<int> members{rank_of_stage(topology, rank, boundary),
                           rank_of_stage(topology, rank, (boundary + 1) % stages)};
  if (backward) std::swap(members[0], members[1]);
  return members;
}

std::vector<int> boundary_rounds(int stage, int stages, bool ring) {
  const int boundaries = stages == 1 ? 0 : ring ? stages : stages - 1;
  const auto round_of = [&](int b) {
    return b == stages - 1 && stages % 2 == 1 ? 2 : b % 2;
  };  // an odd ring needs three
  std::vector<int> rounds;
  for (int b = 0; b < boundaries; ++b) rounds.resize(std::max<std::size_t>(rounds.size(), round_of(b) + 1UL), -1);
  for (const int b : {stage, (stage + stages - 1) % stages}) {
    if (b < boundaries) rounds[static_cast<std::size_t>(round_of(b))] = b;
  }
  return rounds;
}

std::vector<int> tied_members(const Topology& topology, int rank) {
  const int stage = topology.coordinates(rank).pp, last = topology.size(Axis::pp) - 1;
  if (last == 0 || (stage != 0 && stage != last)) return {rank};
  return {rank_of_stage(topology, rank, 0), rank_of_stage(topology, rank, last)};
}

}  // namespace llmtrain
