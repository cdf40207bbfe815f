// SPDX-License-Identifier: Apache-2.0
/// Local checks before collectives: a failure on one rank becomes the same Error on every rank.
#pragma once

#include <functional>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/mpi.hpp"

namespace llmtrain {

/// An Error that every rank of the job throws together: one of them prints it, all return its code. Any other Error is
/// one rank's alone, and that rank has to end the job: the others may wait for it in a collective.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Runs `check` on every rank; if any throws, all throw the AgreedError of the lowest failing rank. Collective.
void agree(const MpiComm& comm, const std::function<void()>& check);

/// Runs `check` on rank 0 only; if it throws, all ranks throw that AgreedError. Collective.
void agree_on_root(const MpiComm& comm, const std::function<void()>& check);

/// Prints the message of an error that only this rank knows and ends the job with its code.
[[noreturn]] void end_job(const MpiComm& world, const Error& error);

/// Calls `body` while something stands whose end waits for the other ranks (communicators, memory that these write): an
/// error that only this rank knows ends the job before that is taken down, and after `last`. On one rank, or agreed, it is
/// thrown on.
template <class Body>
auto or_end_job(const MpiComm& world, Body&& body, const std::function<void()>& last = {}) {
  try {
    return with_errors(body);
  } catch (const AgreedError&) {
    throw;
  } catch (const Error& error) {
    if (!world || world.size() == 1) throw;
    if (last) last();
    end_job(world, error);
  }
}

}  // namespace llmtrain
