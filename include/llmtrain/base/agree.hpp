// SPDX-License-Identifier: Apache-2.0
/// Local checks before collectives: a failure on one rank becomes the same Error on every rank.
#pragma once

#include <functional>

#include "llmtrain/base/mpi.hpp"

namespace llmtrain {

/// Runs `check` on every rank; if any throws, all throw an AgreedError with code and message of the lowest failing rank. Collective.
void agree(const MpiComm& comm, const std::function<void()>& check);

/// Runs `check` on rank 0 only; if it throws, all ranks throw its AgreedError. Collective.
void agree_on_root(const MpiComm& comm, const std::function<void()>& check);

}  // namespace llmtrain
