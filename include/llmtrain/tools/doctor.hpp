// SPDX-License-Identifier: Apache-2.0
/// What `llmtrain doctor` measures of the ranks of a job and of the links between them, and what it finds slow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmtrain/backend/device.hpp"
#include "llmtrain/topology/topology.hpp"

namespace llmtrain {

/// The cores that this process may run on and the NUMA nodes they belong to, as ranges: "0-7", "0". Source: hwloc.
struct CpuBinding {
  std::string cores, numa_nodes;
  bool near_device = true;  ///< false if the device is attached to none of these nodes
};
/// `device_numa_node`: as Device::numa_node() says, -1 included.
CpuBinding cpu_binding(int device_numa_node);

struct RankHealth {
  std::string host, device;
  int device_numa_node = -1;
  CpuBinding binding;
  double product_rate = 0;  ///< of one large matrix product, FLOP/s
  double copy_rate = 0;     ///< of a copy in its memory, bytes read and written a second
};

/// Two ranks that send each other a message at the same time.
struct PairHealth {
  int first = 0, second = 0;  ///< world ranks
  double rate = 0;            ///< bytes a second and direction
};

/// One group of the layout while all groups of its axis work.
struct GroupHealth {
  std::string name;
  std::vector<int> ranks;
  double latency = 0;  ///< seconds of an all-reduce of 4 bytes
  // Bytes that a rank sends in a second, by the formula of the ring: 2 (n - 1) / n of the tensor in an all-reduce,
  // (n - 1) / n of the whole tensor in the others. In an exchange each rank sends every other one its part of the tensor.
  double all_reduce = 0, all_gather = 0, reduce_scatter = 0, exchange = 0;
};

struct Health {
  DType precision = DType::fp32;
  std::int64_t message_bytes = 0;
  std::vector<RankHealth> ranks;    ///< by rank
  std::vector<PairHealth> pairs;    ///< each pair once
  std::vector<GroupHealth> groups;  ///< by axis, then lowest rank
};

/// Measures every rank at the same time, then pairs, then the groups of `topology`; each figure is the median of `repeats`
/// goes. The result is whole on every rank. Collective over `world`.
Health examine(const MpiComm& world, const Topology& topology, Device& device, DType precision,
               std::int64_t message_bytes, int repeats);

/// Tables of all that was measured, each figure with its part of the median of its like.
std::string health_report(const Health& health);

/// One line for each rank, pair or group whose figure is below `part` of the median of its like (pairs on one host and
/// pairs between hosts are two kinds), and for each rank that runs far from its GPU.
std::vector<std::string> ailments(const Health& health, double part);

}  // namespace llmtrain
