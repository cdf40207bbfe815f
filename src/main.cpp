// SPDX-License-Identifier: Apache-2.0
/// llmtrain: chooses the command, starts MPI if it wants it, and turns errors into one message and an exit code.
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/log.hpp"
#include "llmtrain/base/mpi.hpp"
#include "llmtrain/base/signals.hpp"
#include "llmtrain/tools/tool.hpp"

namespace {

using namespace llmtrain;

int report(const Error& error, bool prints) {
  if (prints) std::fputs(error_text(error).c_str(), stderr);
  return static_cast<int>(error.code());
}

/// Any exception of `body` as an Error.
template <class Body>
int with_errors(Body&& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw Error(ExitCode::out_of_memory, "out of memory");
  } catch (const std::exception& error) {
    throw Error(ExitCode::internal, std::string("internal error: ") + error.what());
  }
}

int run_with_mpi(const Command& command, int argc, char** argv) {
  MpiSession session(argc, argv);
  const MpiComm world = MpiComm::world();
  try {
    return with_errors([&] { return command.tool.run(world, command.arguments); });
  } catch (const AgreedError& error) {
    return report(error, world.rank() == 0);
  } catch (const Error& error) {
    // Only this rank knows, the others may wait for it in a collective.
    if (world.size() == 1) return report(error, true);
    std::fprintf(stderr, "rank %d: ", world.rank());
    world.abort(report(error, true));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return with_errors([&] {
      const Command command = choose_command(std::vector<std::string>(argv + 1, argv + argc));
      if (command.tool.run == tool_train) {  // before MPI starts, which can take long
        note_stop_signals();
        ignore_broken_pipes();
      }
      return command.tool.mpi ? run_with_mpi(command, argc, argv) : command.tool.run({}, command.arguments);
    });
  } catch (const Error& error) {
    return report(error, is_first_of_job());
  }
}
