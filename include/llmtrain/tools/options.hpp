// SPDX-License-Identifier: Apache-2.0
/// Options of subcommands by Boost.Program_options, with llmtrain's errors.
#pragma once

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/tools/tool.hpp"

namespace llmtrain {

/// The arguments of a subcommand, taken apart.
struct CommandLine {
  boost::program_options::variables_map options;
  std::vector<std::string> words;  ///< what belongs to no option, in order
};

/// Whether a subcommand has words beside its options.
enum class Words { taken, refused };

/// Parses the arguments of subcommand `tool`. Options are not guessed from their beginnings. Throws Error(usage) for
/// what Boost refuses: unknown or repeated options, missing values, words where there are none.
CommandLine parse_options(std::string_view tool, Arguments arguments,
                          const boost::program_options::options_description& options, Words words = Words::taken);

/// A deck and what a command line sets over it.
struct NamedDeck {
  std::string path;                    ///< empty: none was named
  std::vector<std::string> overrides;  ///< "block.key=value"
};

/// The first word is the deck, if there is one.
NamedDeck named_deck(std::vector<std::string> words);

/// Usage line, meaning and options of `tool`, for its --help.
std::string tool_usage(std::string_view tool, const boost::program_options::options_description& options);

}  // namespace llmtrain
