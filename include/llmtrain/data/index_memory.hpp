// SPDX-License-Identifier: Apache-2.0
/// The memory of sample orders: one copy for all ranks of a node, made and filled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "llmtrain/base/files.hpp"
#include "llmtrain/base/mpi.hpp"

namespace llmtrain {

/// Orders ask for their part while data sets are opened; then build() makes the whole, and the first rank of each node fills
/// it. It is memory of no file's, which the other ranks open through that rank's descriptor: nothing is left behind, and
/// nothing can be out of date. Nobody reads a part before.
class IndexMemory {
 public:
  using Fill = std::function<void(std::byte*)>;

  IndexMemory() = default;
  ~IndexMemory();
  IndexMemory(const IndexMemory&) = delete;
  IndexMemory& operator=(const IndexMemory&) = delete;

  /// The place of a part of so many bytes, aligned to 8, which `fill` will write.
  std::int64_t request(std::int64_t bytes, Fill fill);

  /// For this process alone. Throws Error(out_of_memory).
  void build();
  /// For the ranks of `world`, whose parts are alike, with a copy a `node`. Throws AgreedError. Collective.
  void build(const MpiComm& world, const MpiComm& node);

  std::int64_t bytes() const { return bytes_; }
  const std::byte* at(std::int64_t place) const { return data_ + place; }

 private:
  struct Part {
    std::int64_t place;
    Fill fill;
  };
  void make();
  void map(int descriptor, bool writable);
  void map_that_of(const std::string& descriptor);
  void fill();

  std::vector<Part> parts_;
  std::int64_t bytes_ = 0;
  std::byte* data_ = nullptr;
  FileDescriptor descriptor_;  // until all have mapped it
};

}  // namespace llmtrain
