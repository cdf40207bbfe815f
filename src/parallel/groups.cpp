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

}  // namespace llmtrain
