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
  po::options_description all(shown);
  all.add_options()("words", po::value<std::vector<std::string>>());
  const po::variables_map values =
      parse_options("print-deck", arguments, all, po::positional_options_description().add("words", -1));
  if (values.contains("help")) {
    fmt::print("{}", tool_usage("print-deck", shown));
    return 0;
  }
  if (!values.contains("words")) {
    fmt::print("{}", to_commented_yaml(Deck{}));
    return 0;
  }
  const auto& words = values["words"].as<std::vector<std::string>>();
  const Deck deck = read_deck(words.front(), std::span(words).subspan(1));
  fmt::print("{}", to_yaml(deck));
  return 0;
}

}  // namespace llmtrain
