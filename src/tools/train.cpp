// SPDX-License-Identifier: Apache-2.0
/// `llmtrain DECK`: launches, says what will happen, trains.
#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/inject.hpp"
#include "llmtrain/driver/run.hpp"
#include "llmtrain/tools/tool.hpp"

namespace llmtrain {

int tool_train(const MpiComm& world, Arguments arguments) {
  std::string fault;
  agree(world, [&] { fault = arm_faults(world.rank()); });
  Launch start = launch(arguments[0], arguments.subspan(1), world, Start::resume);
  Logger log(world.rank());
  if (!fault.empty()) log.warning("{}", fault);
  return run_training(start, log);
}

}  // namespace llmtrain
