// SPDX-License-Identifier: Apache-2.0
/// Options of subcommands.
#include "llmtrain/tools/options.hpp"

#include <boost/program_options/errors.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/positional_options.hpp>
#include <sstream>
#include <utility>

namespace llmtrain {

namespace po = boost::program_options;

CommandLine parse_options(std::string_view tool, Arguments arguments, const po::options_description& options,
                          Words words) {
  CommandLine line;
  po::options_description all;
  all.add(options);
  po::positional_options_description places;
  if (words == Words::taken) {
    all.add_options()("words", po::value(&line.words));
    places.add("words", -1);
  }
  try {
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    const std::vector<std::string> given(arguments.begin(), arguments.end());
    po::store(po::command_line_parser(given).options(all).positional(places).style(style).run(), line.options);
    po::notify(line.options);
  } catch (const po::error& error) {
    fail(ExitCode::usage, "{}: {} (see llmtrain {} --help)", tool, error.what(), tool);
  }
  line.options.erase("words");
  return line;
}

NamedDeck named_deck(std::vector<std::string> words) {
  if (words.empty()) return {};
  NamedDeck deck{std::move(words.front()), {}};
  words.erase(words.begin());
  deck.overrides = std::move(words);
  return deck;
}

std::string tool_usage(std::string_view tool, const po::options_description& options) {
  const Tool* row = find_tool(tool);
  LLMTRAIN_CHECK(row != nullptr);
  std::ostringstream out;
  out << "llmtrain " << row->name << ' ' << row->arguments << '\n' << row->meaning << '\n' << options;
  return out.str();
}

}  // namespace llmtrain
