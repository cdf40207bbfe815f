// SPDX-License-Identifier: Apache-2.0
/// Sets of ranks, in words.
#include "llmtrain/topology/placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace llmtrain {

namespace {

std::string text_of(const std::set<int>& numbers) { return ranges(std::vector<int>(numbers.begin(), numbers.end())); }

}  // namespace

std::string ranges(std::span<const int> ascending) {
  std::string text;
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t end = i + 1;
    while (end < ascending.size() && ascending[end] == ascending[end - 1] + 1) ++end;
    text += text.empty() ? "" : ", ";
    text += end - i > 1 ? fmt::format("{}-{}", ascending[i], ascending[end - 1]) : fmt::format("{}", ascending[i]);
    i = end;
  }
  return text;
}

std::vector<std::string> placement(const Topology& topology) {
  struct Held {
    std::set<int> ranks, data, tensor;
  };
  std::map<std::pair<int, int>, Held> held;  // by node and stage
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    const Coordinates at = topology.coordinates(rank);
    Held& here = held[{topology.node(rank), at.pp}];
    here.ranks.insert(rank);
    here.data.insert(topology.index(data_axes, rank));
    here.tensor.insert(at.tp);
  }
  std::vector<std::string> lines;
  for (const auto& [place, here] : held) {
    lines.push_back(fmt::format("node {}  stage {}  ranks {}  data {}  tensor {}", place.first, place.second,
                                text_of(here.ranks), text_of(here.data), text_of(here.tensor)));
  }
  return lines;
}

std::string split_tensor_groups(const Topology& topology) {
  const int tensor = topology.size(Axis::tp);
  int split = 0;
  std::string first;
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    if (topology.coordinates(rank).tp != 0 || !topology.leaves_node(Axis::tp, rank)) continue;
    if (split++ > 0) continue;
    const std::vector<int> members = topology.members(Axis::tp, rank);
    std::set<int> on;
    for (const int member : members) on.insert(topology.node(member));
    first = fmt::format("ranks {} on nodes {}", ranges(members), text_of(on));
  }
  if (split == 0) return {};
  std::map<int, int> sizes;  // ranks by node
  for (int rank = 0; rank < topology.ranks(); ++rank) ++sizes[topology.node(rank)];
  const auto by_size = [](const auto& a, const auto& b) { return a.second < b.second; };
  return fmt::format(
      "{} of {} tensor groups leave their node (first: {}): their collectives, several a block, then go over the "
      "network; parallel.tensor {} should divide the ranks of every node (the smallest has {})",
      split, topology.ranks() / tensor, first, tensor, std::min_element(sizes.begin(), sizes.end(), by_size)->second);
}

}  // namespace llmtrain
