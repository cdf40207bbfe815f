// SPDX-License-Identifier: Apache-2.0
/// What tests of the CPU's communicators share: all ranks as one group, and data by rank whose sums show their order.
#pragma once

#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <type_traits>
#include <vector>

#include "../../src/backend/cpu/communicator.hpp"

namespace llmtrain::test {

inline std::unique_ptr<Kernels> no_kernels() { return nullptr; }

/// A device and communicators over all ranks; few staging bytes, so that reductions run in many rounds.
struct Ranks {
  explicit Ranks(bool check, std::int64_t staging_bytes = 2048, std::int64_t max_message = 1 << 30)
      : check(check), bytes(staging_bytes), max_message(max_message) {
    group.name = "all";
    group.comm = MpiComm::world();
    group.rank = group.comm.rank();
    for (int p = 0; p < group.comm.size(); ++p) group.world_ranks.push_back(p);
  }

  std::unique_ptr<CpuCommunicator> make() {
    staging.emplace_back(static_cast<std::size_t>(bytes));
    const Tensor workspace = Tensor::dense(staging.back().data(), DType::uint8, {bytes});
    return std::make_unique<CpuCommunicator>(device, group, workspace, CpuCommunicatorOptions{check, max_message});
  }

  CpuDevice device{1, &no_kernels};
  Stream stream = device.make_stream("test");
  Group group;
  bool check;
  std::int64_t bytes, max_message;
  std::deque<std::vector<std::byte>> staging;
};

/// Element i of a rank's data: over thirty binades, so that nearly every order of a sum gives other bits.
template <class T>
T value(int rank, std::int64_t i) {
  std::uint64_t h =
      static_cast<std::uint64_t>(i + 1) * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank) * 0xda942042e4dd58b5u;
  h = (h ^ (h >> 31)) * 0xbf58476d1ce4e5b9u;
  h ^= h >> 29;
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<std::int32_t>(h >> 36) - (1 << 27));
  const double unit = static_cast<double>(h >> 11) / static_cast<double>(std::uint64_t{1} << 52) - 1.0;
  return static_cast<T>(std::ldexp(unit, static_cast<int>(h % 30)));
}

template <class T>
std::vector<T> values(int rank, std::int64_t count) {
  std::vector<T> data(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) data[static_cast<std::size_t>(i)] = value<T>(rank, i);
  return data;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
Tensor view(std::vector<T>& data) {
  return Tensor::dense(data.data(), dtype_of<T>, {static_cast<std::int64_t>(data.size())});
}

}  // namespace llmtrain::test
