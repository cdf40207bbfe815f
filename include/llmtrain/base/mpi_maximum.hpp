// SPDX-License-Identifier: Apache-2.0
/// An all-reduce (MAX) of a few numbers in two halves, so that what ranks agree on costs no wait.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "llmtrain/base/mpi.hpp"

namespace llmtrain {

/// Posted at one step boundary, read at the next, on a communicator of its own.
class MpiMaximum {
 public:
  MpiMaximum(const MpiComm& comm, int count);  ///< Collective.
  /// Waits for what was posted; but while an exception leaves this rank alone, the memory is left to MPI instead.
  ~MpiMaximum();
  MpiMaximum(const MpiMaximum&) = delete;
  MpiMaximum& operator=(const MpiMaximum&) = delete;

  void post(std::span<const std::int64_t> mine);  ///< Collective, does not wait.
  std::span<const std::int64_t> read();           ///< Waits for what all ranks posted.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace llmtrain
