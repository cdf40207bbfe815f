// SPDX-License-Identifier: Apache-2.0
/// From a Megatron-LM command line, or the script that holds it, to a deck.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "llmtrain/base/error.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/importers/importers.hpp"
#include "llmtrain/importers/shell.hpp"
#include "megatron_arguments.hpp"

namespace llmtrain {
namespace megatron {
namespace {

/// Name of the argument that `word` gives: "lr" of "--lr=1e-4"; empty if it gives none.
std::string_view argument_of(std::string_view word) {
  return word.starts_with("--") ? word.substr(2, word.find('=') - 2) : std::string_view();
}

bool is_known(const std::string& word) {
  const std::string_view name = argument_of(word);
  return !name.empty() && find_row(name) != nullptr;
}

/// Number of the word where Megatron's own arguments begin: after NAME.py, else at the first known argument.
std::size_t first_argument(const std::vector<std::string>& words) {
  const auto known = static_cast<std::size_t>(std::find_if(words.begin(), words.end(), is_known) - words.begin());
  for (std::size_t i = known; i-- > 0;) {
    if (words[i].ends_with(".py")) return i + 1;
  }
  return known;
}

/// Value of a launcher's option, with '-' or '_' in its name; 0 if it is not there or no number.
std::int64_t launcher_number(const std::vector<std::string>& words, std::size_t end, std::string name) {
  for (std::size_t i = 0; i < end; ++i) {
    std::string word(argument_of(words[i]));
    std::replace(word.begin(), word.end(), '_', '-');
    if (word != name) continue;
    const std::size_t equals = words[i].find('=');
    const std::string value = equals != std::string::npos ? words[i].substr(equals + 1)
                              : i + 1 < end               ? words[i + 1]
                                                          : "";
    std::int64_t number = 0;
    if (shell_arithmetic(value, {}, number)) return number;
  }
  return 0;
}

DeckDraft translate(const std::vector<std::string>& words, std::string run_name, DeckDraft draft, std::int64_t ranks,
                    const ImportOptions& options) {
  const std::size_t begin = first_argument(words);
  const std::int64_t nodes = launcher_number(words, begin, "nnodes");
  const std::int64_t per_node = launcher_number(words, begin, "nproc-per-node");
  if (ranks == 0 && per_node > 0) ranks = std::max<std::int64_t>(nodes, 1) * per_node;
  if (options.ranks > 0) ranks = options.ranks;
  if (ranks > 0) draft.note({Fate::translated, "", "", fmt::format("made for {} ranks", ranks)});
  const Arguments args(std::vector<std::string>(words.begin() + static_cast<std::ptrdiff_t>(begin), words.end()),
                       draft);
  if (args.given("wandb-exp-name")) run_name = args.text("wandb-exp-name", "");
  draft.set("run.name", quote_yaml(run_name), args.given("wandb-exp-name") ? args.shown("wandb-exp-name") : "");
  draft.set("run.dir", quote_yaml("runs/" + run_name), "");
  for (const auto rows : megatron_rows()) {
    for (const ImportRow& row : rows) {
      if (row.kind != RowKind::key || (!args.given(row.name) && row.usual.empty())) continue;
      const bool flag = row.takes == Takes::nothing;
      const std::string value = flag ? "true" : args.text(row.name, row.usual);
      draft.set(row.text, yaml_for(row.text, value, args.shown(row.name)), args.shown(row.name));
    }
  }
  Translation t{draft, args, ranks};
  translate_batches(t);
  translate_model(t);
  translate_layout(t);
  translate_schedule(t);
  translate_optimizer(t);
  translate_precision(t);
  translate_data(t);
  translate_tokenizer(t);
  translate_checkpoints(t);
  apply_overrides(draft, options.overrides);
  return draft;
}

std::int64_t positive(const std::map<std::string, std::string>& options, const std::string& name) {
  const auto found = options.find(name);
  std::int64_t number = 0;
  if (found == options.end()) return 0;
  const std::size_t digits = found->second.find_last_not_of("0123456789");  // "gpu:8", "h100:8", "8"
  const std::string value = found->second.substr(digits == std::string::npos ? 0 : digits + 1);
  return shell_arithmetic(value, {}, number) && number > 0 ? number : 0;
}

/// What Slurm tells a script, as far as its own options say it.
ShellVariables slurm_variables(const std::map<std::string, std::string>& options, std::int64_t& ranks) {
  ShellVariables variables;
  const auto put = [&](const char* name, std::int64_t value) {
    if (value > 0) variables[name] = {std::to_string(value)};
  };
  const std::int64_t nodes = std::max<std::int64_t>(positive(options, "nodes"), 1);
  std::int64_t tasks = positive(options, "ntasks-per-node");
  const std::int64_t gpus =
      std::max({positive(options, "gpus-per-node"), positive(options, "gres"), positive(options, "gpus") / nodes});
  // One task a node that starts the processes of all its GPUs is as common as one task a GPU.
  ranks = nodes * std::max(tasks, gpus);
  put("SLURM_NNODES", positive(options, "nodes"));
  put("SLURM_JOB_NUM_NODES", positive(options, "nodes"));
  put("SLURM_NTASKS_PER_NODE", tasks);
  put("SLURM_NTASKS", positive(options, "ntasks") > 0 ? positive(options, "ntasks") : nodes * tasks);
  put("SLURM_GPUS_ON_NODE", gpus);
  put("SLURM_GPUS_PER_NODE", gpus);
  if (const auto name = options.find("job-name"); name != options.end()) variables["SLURM_JOB_NAME"] = {name->second};
  return variables;
}

/// The words of a command, with those that hold a command line of their own (bash -c "...") taken apart.
std::vector<std::string> opened(const std::vector<std::string>& words, const ShellVariables& variables) {
  std::vector<std::string> out;
  for (const std::string& word : words) {
    const bool holds_command = word.find("--") != std::string::npos && word.find_first_of(" \n\t") != std::string::npos;
    bool taken = false;
    if (holds_command) {
      for (const ShellCommand& inner : read_shell(word, variables).commands) {
        if (std::count_if(inner.words.begin(), inner.words.end(), is_known) < 2) continue;
        out.insert(out.end(), inner.words.begin(), inner.words.end());
        taken = true;
      }
    }
    if (!taken) out.push_back(word);
  }
  return out;
}

/// The command with the most arguments of Megatron.
ShellCommand find_command(const ShellScript& script, const std::string& name) {
  ShellCommand best;
  std::ptrdiff_t most = 0;
  for (const ShellCommand& command : script.commands) {
    std::vector<std::string> words = opened(command.words, script.variables);
    const std::ptrdiff_t known = std::count_if(words.begin(), words.end(), is_known);
    if (known <= most) continue;
    most = known;
    best = {std::move(words), command.line};
  }
  require(most > 0, ExitCode::bad_input,
          "{}: no command with arguments of Megatron-LM is in it; give the command line itself after --", name);
  return best;
}

/// What the shell could not tell, where it matters to this command; and arguments that a broken line cuts off.
void note_shell(const ShellScript& script, const ShellCommand& command, DeckDraft& draft) {
  for (const ShellNote& note : script.notes) {
    const auto begin = command.words.begin() + static_cast<std::ptrdiff_t>(first_argument(command.words));
    const bool in_words = std::any_of(begin, command.words.end(), [&](const std::string& word) {
      return word.find(note.subject) != std::string::npos;
    });
    const bool expansion = note.subject.starts_with('$') || note.subject.starts_with('`');
    if (expansion && !in_words) continue;
    draft.note(
        {expansion ? Fate::open : Fate::translated, "", note.subject,
         fmt::format("line {}: {}{}", note.line, note.text, expansion ? "; it stands in the deck as it is" : "")});
  }
  for (const ShellCommand& other : script.commands) {
    if (other.words.front().starts_with("--")) {
      draft.note(
          {Fate::unknown, "", other.words.front(),
           fmt::format("line {}: begins a command of its own: the line before does not end in '\\', or a comment "
                       "stands there. The shell never passes it to Megatron; nothing was done",
                       other.line)});
    }
  }
}

}  // namespace
}  // namespace megatron

DeckDraft import_megatron(const std::vector<std::string>& words, const std::string& name,
                          const ImportOptions& options) {
  require(!words.empty(), ExitCode::usage, "import megatron: a command line or a script is needed after --");
  return megatron::translate(words, "imported", DeckDraft("megatron from " + name), 0, options);
}

DeckDraft import_megatron_script(std::string_view script, const std::string& name, const ImportOptions& options) {
  std::int64_t ranks = 0;
  const std::map<std::string, std::string> batch = sbatch_options(script);
  const ShellScript read = read_shell(script, megatron::slurm_variables(batch, ranks));
  const ShellCommand command = megatron::find_command(read, name);
  DeckDraft draft(fmt::format("megatron from {}, the command in line {}", name, command.line));
  megatron::note_shell(read, command, draft);
  const auto job = batch.find("job-name");
  const std::string run_name = job != batch.end() ? job->second : std::filesystem::path(name).stem().string();
  return megatron::translate(command.words, run_name, std::move(draft), ranks, options);
}

}  // namespace llmtrain
