// SPDX-License-Identifier: Apache-2.0
/// The MPI handle behind an MpiComm, for the few files that may include mpi.h.
#pragma once

#include <mpi.h>

#include "llmtrain/base/mpi.hpp"

namespace llmtrain {

struct MpiComm::Impl {
  explicit Impl(MPI_Comm handle) : comm(handle) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  MPI_Comm comm;
};

/// Throws Error(internal) with MPI's own text when `status` is not MPI_SUCCESS.
void check_mpi(int status, const char* call);

/// Waits until the request is done, as Backoff waits.
void wait_for(MPI_Request& request);

}  // namespace llmtrain
