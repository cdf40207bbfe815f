// SPDX-License-Identifier: Apache-2.0
/// The subcommands: one row each in src/tools/subcommands.cpp, one file each in src/tools/.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/mpi.hpp"

namespace llmtrain {

using Arguments = std::span<const std::string>;

/// A subcommand. `run` returns the exit code, and throws Error for what the user has to mend.
struct Tool {
  std::string_view name;
  std::string_view arguments;  ///< as --help shows them: "[DECK [block.key=value ...]]"
  std::string_view meaning;    ///< one line for --help
  bool mpi = false;            ///< main starts MPI and passes the world; else `world` is null
  int (*run)(const MpiComm& world, Arguments arguments) = nullptr;
};

/// All subcommands, in the order of --help.
std::span<const Tool> tools();
const Tool* find_tool(std::string_view name);

/// What a command line asks for.
struct Command {
  Tool tool;
  std::vector<std::string> arguments;  ///< for the tool; a deck first if it trains
};

/// The first argument is a subcommand if it equals one, else a deck to train. Throws Error(usage) for an empty command
/// line, an unknown option, and a misspelt subcommand that is no file.
Command choose_command(Arguments arguments);

/// False on all ranks but the first of a job (by the launcher's variables), so that what every rank finds by itself
/// before MPI is started is printed once.
bool is_first_of_job();

// One function a subcommand.
int tool_train(const MpiComm& world, Arguments arguments);  // `llmtrain DECK`: not in the table
int tool_preprocess(const MpiComm& world, Arguments arguments);
int tool_data(const MpiComm& world, Arguments arguments);
int tool_plan(const MpiComm& world, Arguments arguments);
int tool_calibrate(const MpiComm& world, Arguments arguments);
int tool_doctor(const MpiComm& world, Arguments arguments);
int tool_verify(const MpiComm& world, Arguments arguments);
int tool_generate(const MpiComm& world, Arguments arguments);
int tool_checkpoint(const MpiComm& world, Arguments arguments);
int tool_print_deck(const MpiComm& world, Arguments arguments);
int tool_import(const MpiComm& world, Arguments arguments);
int tool_help(const MpiComm& world, Arguments arguments);
int tool_version(const MpiComm& world, Arguments arguments);  // `llmtrain --version`: not in the table

}  // namespace llmtrain
