// SPDX-License-Identifier: Apache-2.0
/// The table of subcommands and the choice of one.
#include "llmtrain/tools/tool.hpp"

#include <array>
#include <filesystem>

#include "llmtrain/base/host.hpp"
#include "llmtrain/config/suggest.hpp"

namespace llmtrain {
namespace {

// In the order of --help.
constexpr std::array rows{
    Tool{"preprocess", "--input FILE... --output-prefix P --tokenizer T|--train-tokenizer N [options]",
         "Turn JSON lines into indexed datasets.", true, tool_preprocess},
    Tool{"data", "info|dump|verify|merge|split|at ...", "Look at indexed datasets, prove, join and cut them.", false,
         tool_data},
    Tool{
        "plan",
        "DECK --ranks N | --nodes N [--gpu NAME | --hardware FILE] [--json | --search] [options] [block.key=value ...]",
        "Say what a deck needs on a cluster, and how fast it would be, without either.", false, tool_plan},
    Tool{"calibrate", "[--output FILE] [--name NAME] [--threads N] [--repeats N]",
         "Measure this machine's processor and network for plan --hardware.", true, tool_calibrate},
    Tool{"verify", "DECK [--against 'KEY=VALUE ...'] [--steps K] [--dump FILE.h5] [block.key=value ...]",
         "Compare the layout of a deck with another one, or write the numbers of its first steps.", true, tool_verify},
    Tool{"doctor", "[DECK [block.key=value ...]] [--slow PART] [--mebibytes N] [--repeats N]",
         "Measure the devices of a job and the links between them, and name what is slow.", true, tool_doctor},
    Tool{"checkpoint", "ls|info|verify|index PATH, diff A B, prune PATH --keep N, export|import|consolidate FROM TO",
         "Look at checkpoints, prove, compare and prune them, exchange them with Hugging Face.", false,
         tool_checkpoint},
    Tool{"generate", "CHECKPOINT --prompt TEXT | --prompt-file FILE | --prompt-ids IDS [options]",
         "Continue a prompt, or write its logits.", false, tool_generate},
    Tool{"print-deck", "[DECK [block.key=value ...]]", "Print every key with default and meaning, or a deck resolved.",
         false, tool_print_deck},
    Tool{"import", "deepspeed FILE.json [--ranks N] [block.key=value ...] | megatron [...] -- SCRIPT | COMMAND LINE",
         "Make a commented deck from the input of DeepSpeed or Megatron-LM.", false, tool_import},
    Tool{"help", "[KEY | BLOCK | COMMAND | exit-codes | inject]",
         "Explain a key, a block of keys, a command, the exit codes or injected faults.", false, tool_help},
};

constexpr Tool train{"", "DECK [block.key=value ...]", "Train as DECK says.", true, tool_train};
constexpr Tool version{"--version", "", "Print what this build was made from.", false, tool_version};

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string nearest_tool(const std::string& name) {
  std::vector<std::string> names;
  for (const Tool& tool : rows) names.emplace_back(tool.name);
  return nearest(name, names);
}

}  // namespace

std::span<const Tool> tools() { return rows; }

const Tool* find_tool(std::string_view name) {
  for (const Tool& tool : rows) {
    if (tool.name == name) return &tool;
  }
  return nullptr;
}

Command choose_command(Arguments arguments) {
  require(!arguments.empty(), ExitCode::usage,
          "a deck or a command is needed: llmtrain DECK [block.key=value ...] (see llmtrain --help)");
  const std::string& first = arguments[0];
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (first == "--help" || first == "-h") return {*find_tool("help"), {}};
  if (first == "--version" || first == "-V") return {version, rest};
  if (const Tool* tool = find_tool(first)) {
    Command command{*tool, rest};
    // Alone, preprocess needs no MPI: it also works where that cannot start.
    if (tool->run == tool_preprocess && launcher_rank() == nullptr) command.tool.mpi = false;
    return command;
  }
  require(!first.starts_with('-'), ExitCode::usage, "unknown option '{}' (see llmtrain --help)", first);
  if (!exists(first)) {
    require(first.find('=') == std::string::npos, ExitCode::usage,
            "'{}' stands before the deck: llmtrain DECK [block.key=value ...]", first);
    const bool may_be_command = first.find_first_of("./") == std::string::npos;
    const std::string near = may_be_command ? nearest_tool(first) : "";
    require(near.empty(), ExitCode::usage, "'{}' is neither a command nor a file{}", first, did_you_mean(near));
  }
  return {train, {arguments.begin(), arguments.end()}};
}

bool is_first_of_job() {
  const char* rank = launcher_rank();
  return rank == nullptr || std::string_view(rank) == "0";
}

}  // namespace llmtrain
