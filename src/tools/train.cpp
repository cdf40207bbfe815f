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
  Logger log(world.rank());
  if (!fault.empty()) log.warning("{}", fault);
  const auto train = [&](Launch start) { return run_training(start, log); };
  const auto start = [&](Start how) { return launch(arguments[0], arguments.subspan(1), world, how); };
  Launch first = start(Start::resume);
  const bool may_skip = first.deck.checkpoint.resume == "auto";
  try {
    return train(std::move(first));
  } catch (const AgreedError& error) {
    if (error.code() != ExitCode::checkpoint_damaged || !may_skip) throw;
    log.warning(
        "the checkpoint is damaged, as its load has found; this run starts over, from the newest that verifies");
  }
  return train(start(Start::resume_proven));
}

}  // namespace llmtrain
