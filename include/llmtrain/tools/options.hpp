// SPDX-License-Identifier: Apache-2.0
/// Options of subcommands by Boost.Program_options, with llmtrain's errors.
#pragma once

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/positional_options.hpp>
#include <boost/program_options/variables_map.hpp>

#include "llmtrain/tools/tool.hpp"

namespace llmtrain {

/// Parses the arguments of subcommand `tool`. Options are not guessed from their beginnings. Throws Error(usage) for
/// what Boost refuses: unknown or repeated options, missing values.
boost::program_options::variables_map parse_options(
    std::string_view tool, Arguments arguments, const boost::program_options::options_description& options,
    const boost::program_options::positional_options_description& positional);

/// Usage line, meaning and options of `tool`, for its --help.
std::string tool_usage(std::string_view tool, const boost::program_options::options_description& options);

}  // namespace llmtrain
