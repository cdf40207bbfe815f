// SPDX-License-Identifier: Apache-2.0
/// Reads shell scripts without running them: the commands in them with variables, arrays and quotes put in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace llmtrain {

struct ShellCommand {
  std::vector<std::string> words;
  int line = 0;
};

/// What only running the script could tell.
struct ShellNote {
  int line = 0;
  std::string subject;  ///< the text that stays in the words: "$(nproc)"; or a word such as "if"
  std::string text;     ///< "is not run"
};

/// A scalar has one item; the variables of a script, which start as what the caller knows.
using ShellVariables = std::map<std::string, std::vector<std::string>, std::less<>>;

struct ShellScript {
  std::vector<ShellCommand> commands;  ///< in the order of the text; branches and loop bodies once each
  ShellVariables variables;            ///< at the end
  std::vector<ShellNote> notes;        ///< each subject once
};

/// Assignments (also `+=`, arrays, export), $NAME, ${NAME}, ${NAME:-default}, ${NAME:+other}, ${NAME[@]}, ${#NAME[@]},
/// $((arithmetic)), both kinds of quotes, continued lines, comments, here-documents (skipped). What is not known stays in
/// the words as it is written ("${DATA}", "$(date)") and is noted. The environment is never looked at.
ShellScript read_shell(std::string_view text, ShellVariables variables = {});

/// Value of an arithmetic expression of whole numbers and variables; false if it is none.
bool shell_arithmetic(std::string_view expression, const ShellVariables& variables, std::int64_t& value);

/// Options of the lines "#SBATCH --name=value", "#SBATCH --name value" and "#SBATCH -N value", by long name.
std::map<std::string, std::string> sbatch_options(std::string_view text);

}  // namespace llmtrain
