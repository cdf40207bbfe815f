// SPDX-License-Identifier: Apache-2.0
/// doctest under MPI: cases run in declared order, because a random order would deadlock the ranks; the exit code is
/// the worst of all ranks.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "llmtrain/base/mpi.hpp"

int main(int argc, char** argv) {
  llmtrain::MpiSession session(argc, argv);
  doctest::Context context;
  context.setOption("order-by", "file");
  context.applyCommandLine(argc, argv);
  const int result = context.run();
  return static_cast<int>(llmtrain::MpiComm::world().all_reduce(std::int64_t{result}, llmtrain::MpiOp::max));
}
