// SPDX-License-Identifier: Apache-2.0
/// `llmtrain print-deck`: every key as a commented deck, or a deck resolved.
#include <fmt/format.h>

#include "llmtrain/config/dump.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/tools/options.hpp"

namespace llmtrain {

int tool_print_deck(const MpiComm&, Arguments arguments) {
  namespace po = boost::program_options;
  po::options_description shown("Options");
  shown.add_options()("help,h", "show this");
  const CommandLine line = parse_options("print-deck", arguments, shown);
  if (line.options.contains("help")) {
    fmt::print("{}", tool_usage("print-deck", shown));
    return 0;
  }
  if (line.words.empty()) {
    fmt::print("{}", to_commented_yaml(Deck{}));
    return 0;
  }
  const NamedDeck named = named_deck(line.words);
  fmt::print("{}", to_yaml(read_deck(named.path, named.overrides)));
  return 0;
}

}  // namespace llmtrain
