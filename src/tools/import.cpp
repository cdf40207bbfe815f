// SPDX-License-Identifier: Apache-2.0
/// `llmtrain import`: a commented deck from the input of DeepSpeed or Megatron-LM.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/config/suggest.hpp"
#include "llmtrain/importers/importers.hpp"
#include "llmtrain/tools/options.hpp"

namespace llmtrain {
namespace {

namespace po = boost::program_options;

constexpr char explanation[] =
    "\n  llmtrain import deepspeed ds_config.json > deck.yaml\n"
    "  llmtrain import megatron -- train.sbatch > deck.yaml\n"
    "  llmtrain import megatron -- torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 80 ...\n\n"
    "The deck begins with what could not be translated, each with the reason: names that the\n"
    "other system does not have, what llmtrain lacks, what does not apply, what the source leaves\n"
    "open. What is absent has the other system's default. Scripts are read, never run; variables\n"
    "of the environment are not looked at. Nothing else is written. block.key=value sets a key\n"
    "of the deck; for megatron it and --ranks stand before the --.\n\n"
    "Exit codes: 0 done, 64 usage (a number of ranks is needed, say), 65 bad input, 66 input\n"
    "missing, 78 the deck was written but asks for something impossible.\n";

std::string read_source(const std::string& path) {
  require(!std::filesystem::is_directory(path), ExitCode::missing_input, "cannot read {}: it is a folder", path);
  std::string text = read_file(path);
  require(text.size() <= std::size_t{1} << 24, ExitCode::bad_input, "{}: larger than 16 MiB; it is no such file", path);
  return text;
}

/// After `--`: one word that names a file is a script, all else a command line.
DeckDraft import_words(const std::vector<std::string>& words, const ImportOptions& options) {
  const bool script = words.size() == 1 && !words.front().starts_with('-');
  if (script) return import_megatron_script(read_source(words.front()), words.front(), options);
  return import_megatron(words, "a command line", options);
}

void print_summary(const DeckDraft& draft) {
  fmt::print(stderr, "{} keys;", draft.values().size());
  for (const Fate fate : {Fate::open, Fate::unknown, Fate::unsupported, Fate::not_applicable}) {
    fmt::print(stderr, " {} {}{}", draft.count(fate), fate_name(fate), fate == Fate::not_applicable ? "\n" : ",");
  }
}

}  // namespace

int tool_import(const MpiComm&, Arguments arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  const bool has_dashes = dashes != arguments.end();
  const std::vector<std::string> words(has_dashes ? dashes + 1 : dashes, arguments.end());
  ImportOptions options;
  po::options_description shown("Options");
  shown.add_options()("help,h", "show this")("ranks", po::value(&options.ranks),
                                             "ranks of the job, where the source does not say");
  const CommandLine line =
      parse_options("import", arguments.first(static_cast<std::size_t>(dashes - arguments.begin())), shown);
  const std::vector<std::string>& given = line.words;
  if (line.options.contains("help")) {
    fmt::print("{}{}", tool_usage("import", shown), explanation);
    return 0;
  }
  require(!given.empty(), ExitCode::usage,
          "import: say from which system: deepspeed or megatron (see llmtrain import --help)");
  require(!line.options.contains("ranks") || options.ranks > 0, ExitCode::usage,
          "import --ranks {}: a positive number is needed", options.ranks);
  const std::vector<std::string> systems{"deepspeed", "megatron"};
  const std::string system = given.front();
  require(std::find(systems.begin(), systems.end(), system) != systems.end(), ExitCode::usage,
          "import: '{}' is neither deepspeed nor megatron{}", system, did_you_mean(nearest(system, systems)));
  const bool deepspeed = system == "deepspeed";
  require(!deepspeed || (given.size() >= 2 && !has_dashes), ExitCode::usage,
          "import deepspeed: name its JSON file: llmtrain import deepspeed ds_config.json");
  require(deepspeed || has_dashes, ExitCode::usage,
          "import megatron: the command line or the script stands after --: llmtrain import megatron -- train.sbatch");
  options.overrides.assign(given.begin() + (deepspeed ? 2 : 1), given.end());
  require_overrides(options.overrides);
  const DeckDraft draft =
      deepspeed ? import_deepspeed(read_source(given[1]), given[1], options) : import_words(words, options);
  const std::string text = draft.text();
  fmt::print("{}", text);
  print_summary(draft);
  parse_deck(text, "deck");  // what is impossible in it is reported after it has been written
  return 0;
}

}  // namespace llmtrain
