// SPDX-License-Identifier: Apache-2.0
/// Local checks before collectives: a failure on one rank becomes the same Error on every rank.
#pragma once

#include <functional>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/mpi.hpp"

namespace llmtrain {

/// An Error that every rank of the job throws together: one of them prints it, all return its code. Any other Error is
/// one rank's alone, and that rank has to abort the job.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Runs `check` on every rank; if any throws, all throw the AgreedError of the lowest failing rank. Collective.
void agree(const MpiComm& comm, const std::function<void()>& check);

/// Runs `check` on rank 0 only; if it throws, all ranks throw that AgreedError. Collective.
void agree_on_root(const MpiComm& comm, const std::function<void()>& check);

}  // namespace llmtrain
