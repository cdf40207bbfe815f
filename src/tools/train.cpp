// SPDX-License-Identifier: Apache-2.0
/// `llmtrain DECK`: reads the deck once in the job and trains as it says.
#include "llmtrain/base/agree.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/tools/tool.hpp"

namespace llmtrain {

int tool_train(const MpiComm& world, Arguments arguments) {
  std::string text;
  agree_on_root(world, [&] {
    const DeckChecks checks{.ranks = world.size(), .built = true, .data = true};
    text = to_yaml(read_deck(arguments[0], arguments.subspan(1), checks));
  });
  const Deck deck = parse_deck(world.broadcast(text, 0), arguments[0]);
  throw AgreedError(ExitCode::configuration, arguments[0] + ": the deck is fine, but training is not built yet");
}

}  // namespace llmtrain
