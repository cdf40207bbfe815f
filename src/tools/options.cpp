// SPDX-License-Identifier: Apache-2.0
/// Options of subcommands.
#include "llmtrain/tools/options.hpp"

#include <boost/program_options/errors.hpp>
#include <boost/program_options/parsers.hpp>
#include <sstream>

namespace llmtrain {

namespace po = boost::program_options;

po::variables_map parse_options(std::string_view tool, Arguments arguments, const po::options_description& options,
                                const po::positional_options_description& positional) {
  const std::vector<std::string> words(arguments.begin(), arguments.end());
  po::variables_map values;
  try {
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(words).options(options).positional(positional).style(style).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    fail(ExitCode::usage, "{}: {} (see llmtrain {} --help)", tool, error.what(), tool);
  }
  return values;
}

std::string tool_usage(std::string_view tool, const po::options_description& options) {
  const Tool* row = find_tool(tool);
  LLMTRAIN_CHECK(row != nullptr);
  std::ostringstream out;
  out << "llmtrain " << row->name << ' ' << row->arguments << '\n' << row->meaning << '\n' << options;
  return out.str();
}

}  // namespace llmtrain
