// SPDX-License-Identifier: Apache-2.0
/// llmtrain: chooses the command, starts MPI if it wants it, and turns errors into one message and an exit code.
#include <cstdio>
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

int run_with_mpi(const Command& command, int argc, char** argv) {
  MpiSession session(argc, argv);
  const MpiComm world = MpiComm::world();
  try {
    return or_end_job(world, [&] { return command.tool.run(world, command.arguments); });
  } catch (const Error& error) {  // of all ranks
    return report(error, world.rank() == 0);
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
