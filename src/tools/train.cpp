// SPDX-License-Identifier: Apache-2.0
/// `llmtrain DECK`: launches, says what will happen, trains.
#include "llmtrain/driver/run.hpp"
#include "llmtrain/tools/tool.hpp"

namespace llmtrain {

int tool_train(const MpiComm& world, Arguments arguments) {
  Launch start = launch(arguments[0], arguments.subspan(1), world, Start::resume);
  Logger log(world.rank());
  return run_training(start, log);
}

}  // namespace llmtrain
