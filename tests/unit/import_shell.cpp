// SPDX-License-Identifier: Apache-2.0
/// Scripts are read as the shell would pass their words on, and never run.
#include "llmtrain/importers/shell.hpp"

#include <doctest/doctest.h>

using namespace llmtrain;

namespace {

using Words = std::vector<std::string>;

/// Words of the last command.
Words last(std::string_view text) {
  const ShellScript script = read_shell(text);
  return script.commands.empty() ? Words{} : script.commands.back().words;
}

}  // namespace

TEST_CASE("words, quotes, comments and continued lines") {
  CHECK(last("run a  b\tc") == Words{"run", "a", "b", "c"});
  CHECK(last("run 'a b' \"c d\" e\\ f") == Words{"run", "a b", "c d", "e f"});
  CHECK(last("run 'a'\"b\"c ''") == Words{"run", "abc", ""});
  CHECK(last("run a \\\n  b \\\r\n c # d\n") == Words{"run", "a", "b", "c"});
  CHECK(last("run a#b '#' # c") == Words{"run", "a#b", "#"});
  CHECK(last("run \"a\\\"b\\$c\" '\\n'") == Words{"run", "a\"b$c", "\\n"});
  CHECK(last("first; second && third | fourth x > out 2>&1 &") == Words{"fourth", "x"});
  CHECK(last("run <<END a\nhidden --lr 1\nEND\n") == Words{"run", "a"});
  CHECK(read_shell("a\n\n# b\nc \\\n d\ne").commands.back().line == 6);
}

TEST_CASE("variables, arrays and what becomes of their blanks") {
  CHECK(last("A=1\nB=\"x  y\"\nrun $A ${A}2 $B \"$B\"") == Words{"run", "1", "12", "x", "y", "x  y"});
  CHECK(last("A=(a 'b c'\n d # comment\n)\nA+=(e)\nrun \"${A[@]}\" ${#A[@]}") ==
        Words{"run", "a", "b c", "d", "e", "4"});
  CHECK(last("A=(a b)\nrun \"${A[*]}\" x${A[@]}y") == Words{"run", "a b", "xa", "by"});
  CHECK(last("A=1; A+=2; export B=$A C=3\nrun $A $B $C") == Words{"run", "12", "12", "3"});
  CHECK(last("E=\nrun $E \"$E\" x") == Words{"run", "", "x"});
  CHECK(last("run ${U:-x y} \"${U:-a $((1+1))}\" ${U-z}") == Words{"run", "x", "y", "a 2", "z"});
  CHECK(last("A=\nrun ${A:-x} \"${A-x}\" ${A:+y} ${U+z} w") == Words{"run", "x", "", "w"});
  CHECK(last("OPTIONS=\" \\\n --a 1 \\\n --b 2\"\nrun $OPTIONS") == Words{"run", "--a", "1", "--b", "2"});
  CHECK(last("A=('-a 1' \"-b '2 3'\")\nrun ${A[@]} \"${A[@]}\"") ==
        Words{"run", "-a", "1", "-b", "'2", "3'", "-a 1", "-b '2 3'"});
  CHECK(last("A=(a b)\nA=(${A[@]} c)\nrun ${A[@]}") == Words{"run", "a", "b", "c"});
}

TEST_CASE("arithmetic") {
  CHECK(last("N=8\nrun $((N * $N / 2)) $(( (1 + 2) * -0 )) $((7 % 4 - 1))") ==
        Words{"run", "32", "$(( (1 + 2) * -0 ))", "2"});
  std::int64_t value = 0;
  CHECK_FALSE(shell_arithmetic("1 / 0", {}, value));
  CHECK_FALSE(shell_arithmetic("9223372036854775807 + 1", {}, value));
  CHECK_FALSE(shell_arithmetic("A", {{"A", {"A"}}}, value));  // refers to itself
  CHECK_FALSE(shell_arithmetic("", {}, value));
  CHECK(shell_arithmetic("2*(3+4)", {}, value));
  CHECK(value == 14);
}

TEST_CASE("what only running the script could tell stays as it is written, and is noted once") {
  const ShellScript script =
      read_shell("A=$(nproc --all)\nif [ -f x ]; then\n  run $A $B `date +%F` ${B%.*}\nfi\nrun $B\n");
  REQUIRE(script.commands.size() == 3);
  CHECK(script.commands[1].words == Words{"run", "$(nproc", "--all)", "$B", "`date +%F`", "${B%.*}"});
  Words subjects;
  for (const ShellNote& note : script.notes) subjects.push_back(note.subject);
  CHECK(subjects == Words{"$(nproc --all)", "if", "$B", "`date +%F`", "${B%.*}"});
  CHECK(script.notes[2].line == 3);
  CHECK(read_shell("A=1\n").variables.at("A") == Words{"1"});
}

TEST_CASE("any bytes are read to the end") {
  for (const std::string_view text :
       {"$",      "${", "$((", "$(", "`",   "'",     "\"",     "\\",  "A=(",  "<<",       "run <<E",
        "${A[@]", "(",  "}",   "A=", "A+=", "\"${A", "run \\", "${}", "$((1", "for x in", "case a in b) c;; esac"}) {
    CAPTURE(text);
    CHECK_NOTHROW(read_shell(text));
  }
}

TEST_CASE("options of sbatch") {
  const auto options = sbatch_options(
      "#!/bin/bash\n#SBATCH --nodes=8 # of 8\n#SBATCH -J \"my job\"\n#SBATCH --gres gpu:8 --requeue\n##SBATCH "
      "--time=1\n");
  CHECK(options.at("nodes") == "8");
  CHECK(options.at("job-name") == "my job");
  CHECK(options.at("gres") == "gpu:8");
  CHECK(options.contains("requeue"));
  CHECK_FALSE(options.contains("time"));
}
