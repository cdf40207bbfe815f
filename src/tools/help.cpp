// SPDX-License-Identifier: Apache-2.0
/// `llmtrain help`: commands, keys, blocks and exit codes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "llmtrain/base/inject.hpp"
#include "llmtrain/config/key.hpp"
#include "llmtrain/config/presets.hpp"
#include "llmtrain/config/suggest.hpp"
#include "llmtrain/tools/tool.hpp"

namespace llmtrain {
namespace {

std::string general_help() {
  std::string out =
      "llmtrain: pre-trains large language models\n\n"
      "  llmtrain DECK [block.key=value ...]    train as DECK says (under mpirun: one process a rank)\n"
      "  llmtrain COMMAND [arguments]\n\nCommands:\n";
  for (const Tool& tool : tools())
    out += fmt::format("  {:<12} {}\n  {:<12} {}\n", tool.name, tool.meaning, "", tool.arguments);
  out +=
      "\nOptions:\n  --help, -h     show this\n  --version, -V  show what this build was made from\n\nBlocks of a "
      "deck:\n";
  for (const Block& block : deck_blocks()) out += fmt::format("  {:<12} {}\n", block.name, block.meaning);
  return out +
         "\nllmtrain print-deck shows every key; llmtrain help KEY explains one (optimizer.lr, lr); llmtrain help "
         "exit-codes\n"
         "says what the program returns, llmtrain help inject how to make a run fail on purpose.\n";
}

/// A switch without default: the compiler names a code that is missing here.
std::string_view meaning(ExitCode code) {
  switch (code) {
    case ExitCode::done: return "done";
    case ExitCode::comparison_failed: return "verify or checkpoint diff found a difference, or doctor something slow";
    case ExitCode::usage: return "command line not understood";
    case ExitCode::bad_input: return "a file was read but its contents are wrong";
    case ExitCode::missing_input: return "a named file does not exist or cannot be opened";
    case ExitCode::internal: return "a broken invariant: a bug in llmtrain; please report it";
    case ExitCode::cannot_create: return "an output cannot be created";
    case ExitCode::io_error: return "reading or writing failed part-way (a full disk, say)";
    case ExitCode::requeue: return "stopped on request with a checkpoint written: start it again";
    case ExitCode::permission: return "not allowed";
    case ExitCode::configuration: return "the deck asks for something impossible";
    case ExitCode::diverged: return "more non-finite steps in a row than optimizer.max_skipped";
    case ExitCode::hang: return "no rank got on for run.hang_timeout, or a peer failed";
    case ExitCode::out_of_memory: return "memory that is needed cannot be had";
    case ExitCode::checkpoint_damaged: return "a checkpoint's bytes are not what its manifest says";
    case ExitCode::checkpoint_incompatible: return "a checkpoint belongs to another model, data or optimizer";
  }
  return {};
}

std::string exit_codes_help() {
  std::string out = "Exit codes of llmtrain:\n";
  for (int number = 0; number < 256; ++number) {
    const std::string_view text = meaning(static_cast<ExitCode>(number));
    if (!text.empty()) out += fmt::format("  {:>3}  {}\n", number, text);
  }
  return out +
         "  128+n  ended by signal n: by a second one at once, by the first where checkpoint.every is 0\n\n"
         "While training, the first SIGUSR1, SIGUSR2 or SIGTERM at any rank, or SIGUSR1 or SIGUSR2 at mpirun, which\n"
         "passes it on, makes all ranks stop after the same step, save and return 75 (with checkpoint.every 0 nothing\n"
         "is saved and 128+n returned); a second one ends the program at once, without a save. SIGTERM at\n"
         "mpirun "
         "cannot be honoured: Open MPI 4 then kills the ranks within about a\n"
         "second and returns 1. So let the scheduler send SIGUSR1, or set run.max_walltime.\n";
}

std::string key_help(const Key& key) {
  std::string out = fmt::format("{}\n  {}\n  takes    {}\n  default  {}\n", key.path, key.facts.meaning, key.takes(),
                                key.path == "data.train" ? "none: training needs it" : key.default_text());
  if (!key.facts.also.empty()) {
    out += fmt::format("  elsewhere called {} (decks take only {})\n", fmt::join(key.facts.also, ", "), key.name());
  }
  if (key.path == "model.preset") {
    for (const Preset& preset : presets()) out += fmt::format("  {:<14} {}\n", preset.name, preset.model);
  }
  return out;
}

std::string group_help(const std::string& group) {
  std::string out;
  std::vector<const Key*> keys;
  std::size_t path_width = 0;
  std::size_t value_width = 0;
  for (const Block& block : deck_blocks()) {
    if (block.name == group) out = fmt::format("{}: {}\n", block.name, block.meaning);
    for (const Key& key : block.keys) {
      if (!key.path.starts_with(group + ".")) continue;
      keys.push_back(&key);
      path_width = std::max(path_width, key.path.size());
      value_width = std::max(value_width, key.default_text().size());
    }
  }
  for (const Key* key : keys) {
    out += fmt::format("  {:<{}}  {:<{}}  {}\n", key->path, path_width, key->default_text(), value_width,
                       key->facts.meaning);
  }
  return out;
}

/// Every key whose last name is `name`.
std::vector<const Key*> keys_named(const std::string& name) {
  std::vector<const Key*> out;
  for (const Block& block : deck_blocks()) {
    for (const Key& key : block.keys) {
      if (key.name() == name) out.push_back(&key);
    }
  }
  return out;
}

std::string topic_help(const std::string& topic) {
  if (topic == "exit-codes") return exit_codes_help();
  if (topic == "inject") return faults_help();
  if (const Tool* tool = find_tool(topic)) {
    return fmt::format("llmtrain {} {}\n{}\n", tool->name, tool->arguments, tool->meaning);
  }
  if (const Key* key = find_key(topic)) return key_help(*key);
  std::string out;
  if (is_group(topic)) out = group_help(topic);
  for (const Key* key : keys_named(topic)) out += key_help(*key);
  return out;
}

}  // namespace

int tool_help(const MpiComm&, Arguments arguments) {
  require(arguments.size() <= 1, ExitCode::usage, "help takes one topic, but '{}' follows", arguments.back());
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    fmt::print("{}", general_help());
    return 0;
  }
  const std::string& topic = arguments[0];
  const std::string text = topic_help(topic);
  if (text.empty()) {
    std::vector<std::string> others{"exit-codes", "inject"};
    for (const Tool& tool : tools()) others.emplace_back(tool.name);
    std::string guess = nearest(topic, others);
    if (guess.empty()) guess = suggest_key("", topic);
    fail(ExitCode::usage, "no key, block or command '{}'{}", topic, did_you_mean(guess));
  }
  fmt::print("{}", text);
  return 0;
}

}  // namespace llmtrain
