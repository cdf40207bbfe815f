// SPDX-License-Identifier: Apache-2.0
/// Where each rank stands in the parallel layout: axes, coordinates, groups. Arithmetic only, for any number of ranks.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// The axes of the layout: tensor, context (size 1 for now), ZeRO shards, their replicas, pipeline stages.
enum class Axis { tp, cp, shard, replicate, pp };
inline constexpr int axis_count = 5;

std::string_view name_of(Axis axis);

/// Several axes together; a group of a set holds the ranks that differ only along its axes.
class AxisSet {
 public:
  constexpr AxisSet(Axis axis) : bits_(1U << static_cast<unsigned>(axis)) {}  // NOLINT: one axis is a set
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= 1U << static_cast<unsigned>(axis);
  }
  constexpr bool contains(Axis axis) const { return (bits_ >> static_cast<unsigned>(axis) & 1U) != 0; }

 private:
  unsigned bits_ = 0;
};

inline constexpr AxisSet data_axes{Axis::shard, Axis::replicate};
inline constexpr AxisSet model_axes{Axis::tp, Axis::pp};
inline constexpr AxisSet world_axes{Axis::tp, Axis::cp, Axis::shard, Axis::replicate, Axis::pp};

/// Position along every axis.
struct Coordinates {
  int tp = 0;
  int cp = 0;
  int shard = 0;
  int replicate = 0;
  int pp = 0;

  int along(Axis axis) const;
  int& along(Axis axis);
  bool operator==(const Coordinates&) const = default;
};

/// Number of each rank's node where each node is filled before the next: "0 0 0 0 1 1" for 6 ranks, 4 a node.
std::vector<int> filled_nodes(int ranks, int a_node);

/// World rank <-> coordinates. `parallel.order` tp-dp-pp: tp runs fastest, then cp, shard, replicate, pp (as
/// Megatron-LM); tp-pp-dp: tp, cp, pp, shard, replicate. So the data coordinate is replicate x shard_size + shard.
class Topology {
 public:
  /// `nodes`: number of each rank's node; all are on one if it is empty. Throws Error(configuration) if tensor x pipeline
  /// does not divide `ranks`, or shard the data-parallel ranks.
  Topology(const ParallelConfig& parallel, int ranks, std::vector<int> nodes = {});
  Topology(const Deck& deck, int ranks, std::vector<int> nodes = {})
      : Topology(deck.parallel, ranks, std::move(nodes)) {}

  int ranks() const { return ranks_; }
  int node(int rank) const { return nodes_.empty() ? 0 : nodes_[static_cast<std::size_t>(rank)]; }
  int size(AxisSet axes) const;  ///< ranks in one group of these axes

  Coordinates coordinates(int rank) const;
  int rank(const Coordinates& at) const;

  /// World ranks of the group of `rank`, ascending; the position in this list is the group rank.
  std::vector<int> members(AxisSet axes, int rank) const;
  /// Position of `rank` in its group.
  int index(AxisSet axes, int rank) const;
  /// One number per group, the same for its members: its lowest world rank (a color for MpiComm::split).
  int color(AxisSet axes, int rank) const;
  /// Whether the group of `rank` has members on several nodes.
  bool leaves_node(AxisSet axes, int rank) const;
  /// Whether any group of these axes has: the same on all ranks.
  bool leave_nodes(AxisSet axes) const;

 private:
  int ranks_ = 1;
  std::vector<int> nodes_;
  std::array<Axis, axis_count> order_{};   ///< fastest first
  std::array<int, axis_count> sizes_{};    ///< by Axis
  std::array<int, axis_count> strides_{};  ///< by Axis
};

}  // namespace llmtrain
