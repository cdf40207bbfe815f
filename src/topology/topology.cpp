// SPDX-License-Identifier: Apache-2.0
/// Mixed-radix arithmetic of the parallel layout.
#include "llmtrain/topology/topology.hpp"

#include <algorithm>
#include <cstdint>

#include "llmtrain/base/error.hpp"

namespace llmtrain {
namespace {

constexpr std::size_t at(Axis axis) { return static_cast<std::size_t>(axis); }

}  // namespace

std::string_view name_of(Axis axis) {
  switch (axis) {
    case Axis::tp: return "tp";
    case Axis::cp: return "cp";
    case Axis::shard: return "shard";
    case Axis::replicate: return "replicate";
    case Axis::pp: return "pp";
  }
  return "?";
}

int Coordinates::along(Axis axis) const { return const_cast<Coordinates*>(this)->along(axis); }

int& Coordinates::along(Axis axis) {
  switch (axis) {
    case Axis::tp: return tp;
    case Axis::cp: return cp;
    case Axis::shard: return shard;
    case Axis::replicate: return replicate;
    case Axis::pp: return pp;
  }
  LLMTRAIN_CHECK(false);
  return tp;
}

std::vector<int> filled_nodes(int ranks, int a_node) {
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(rank / a_node);
  return nodes;
}

Topology::Topology(const ParallelConfig& parallel, int ranks, std::vector<int> nodes)
    : ranks_(ranks), nodes_(std::move(nodes)) {
  LLMTRAIN_CHECK(nodes_.empty() || std::ssize(nodes_) == ranks);
  const std::int64_t model = static_cast<std::int64_t>(parallel.tensor) * parallel.pipeline;
  require(ranks >= 1 && model >= 1 && ranks % model == 0, ExitCode::configuration,
          "{} ranks are not divisible by parallel.tensor x parallel.pipeline = {} x {}", ranks, parallel.tensor,
          parallel.pipeline);
  const int data = static_cast<int>(ranks / model);
  const int shard = parallel.shard == 0 ? data : parallel.shard;
  require(shard >= 1 && data % shard == 0, ExitCode::configuration,
          "parallel.shard {} does not divide the {} data-parallel ranks", shard, data);
  sizes_[at(Axis::tp)] = parallel.tensor;
  sizes_[at(Axis::cp)] = 1;
  sizes_[at(Axis::shard)] = shard;
  sizes_[at(Axis::replicate)] = data / shard;
  sizes_[at(Axis::pp)] = parallel.pipeline;
  order_ = parallel.order == RankOrder::tp_dp_pp
               ? std::array{Axis::tp, Axis::cp, Axis::shard, Axis::replicate, Axis::pp}
               : std::array{Axis::tp, Axis::cp, Axis::pp, Axis::shard, Axis::replicate};
  int stride = 1;
  for (const Axis axis : order_) {
    strides_[at(axis)] = stride;
    stride *= sizes_[at(axis)];
  }
}

int Topology::size(AxisSet axes) const {
  int product = 1;
  for (const Axis axis : order_) {
    if (axes.contains(axis)) product *= sizes_[at(axis)];
  }
  return product;
}

Coordinates Topology::coordinates(int rank) const {
  LLMTRAIN_CHECK(rank >= 0 && rank < ranks_);
  Coordinates out;
  for (const Axis axis : order_) out.along(axis) = rank / strides_[at(axis)] % sizes_[at(axis)];
  return out;
}

int Topology::rank(const Coordinates& where) const {
  int rank = 0;
  for (const Axis axis : order_) {
    LLMTRAIN_CHECK(where.along(axis) >= 0 && where.along(axis) < sizes_[at(axis)]);
    rank += where.along(axis) * strides_[at(axis)];
  }
  return rank;
}

std::vector<int> Topology::members(AxisSet axes, int rank) const {
  std::vector<int> out{color(axes, rank)};
  for (const Axis axis : order_) {  // fastest first, so that the list stays ascending
    if (!axes.contains(axis)) continue;
    const std::size_t block = out.size();
    for (int i = 1; i < sizes_[at(axis)]; ++i) {
      for (std::size_t j = 0; j < block; ++j) out.push_back(out[j] + i * strides_[at(axis)]);
    }
  }
  return out;
}

int Topology::index(AxisSet axes, int rank) const {
  const Coordinates where = coordinates(rank);
  int index = 0;
  int stride = 1;
  for (const Axis axis : order_) {
    if (!axes.contains(axis)) continue;
    index += where.along(axis) * stride;
    stride *= sizes_[at(axis)];
  }
  return index;
}

int Topology::color(AxisSet axes, int rank) const {
  Coordinates where = coordinates(rank);
  for (const Axis axis : order_) {
    if (axes.contains(axis)) where.along(axis) = 0;
  }
  return this->rank(where);
}

bool Topology::leaves_node(AxisSet axes, int rank) const {
  const std::vector<int> group = members(axes, rank);
  return std::ranges::any_of(group, [&](int member) { return node(member) != node(rank); });
}

bool Topology::leave_nodes(AxisSet axes) const {
  if (size(axes) == 1) return false;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (node(rank) != node(color(axes, rank))) return true;
  }
  return false;
}

}  // namespace llmtrain
