#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# `llmtrain generate`: prompts from the command line, a file and ids; what the sampling options change; mistakes.
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, WORK, check, finish, prepare, run  # noqa: E402

PROMPT = "the old ship"


def generate(*options, code=0):
    """Standard output, or standard error of a refusal."""
    result = subprocess.run([PROGRAM, "generate", "work/run/checkpoints", "--threads", "1", *options],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=60)
    check(result.returncode == code, f"generate {' '.join(options)}: exit code {code} ({result.returncode})")
    return result.stdout if code == 0 else result.stderr


def prompts():
    text = generate("--prompt", PROMPT, "--tokens", "40")
    check(text.startswith(PROMPT) and len(text) > len(PROMPT) + 10, "the prompt is continued")
    check(generate("--prompt", PROMPT, "--tokens", "40") == text, "again the same")
    ids = ",".join(str(byte) for byte in PROMPT.encode())
    check(generate("--prompt-ids", ids, "--tokens", "40") == text, "the prompt as ids continues alike")
    (WORK / "prompt.txt").write_text(PROMPT + "\n")
    check(generate("--prompt-file", "work/prompt.txt", "--tokens", "40") == text,
          "a prompt file continues alike, without its last newline")
    (WORK / "lines.txt").write_text("a\n\n")
    check(generate("--prompt-file", "work/lines.txt", "--tokens", "0") == "a\n\n",
          "only one newline is taken from a file's end")
    longer = "over a dark sea " * 5  # beyond model.seq_len
    check(generate("--prompt", longer, "--tokens", "10").startswith(longer), "a prompt longer than the context")


def sampling():
    greedy = generate("--prompt", PROMPT, "--temperature", "0")
    check(generate("--prompt", PROMPT, "--temperature", "0", "--seed", "2") == greedy, "temperature 0 needs no seed")
    check(generate("--prompt", PROMPT, "--top-p", "1e-6", "--temperature", "1.5") == greedy,
          "a tiny nucleus holds one token")
    hot = ("--prompt", PROMPT, "--temperature", "1.5", "--seed", "3")
    check(generate(*hot, "--top-p", "1") == generate(*hot), "top-p 1 changes nothing")
    check(generate(*hot, "--top-p", "0.3") != generate(*hot), "top-p cuts what is drawn from")
    check(generate(*hot, "--seed", "4", code=64) != "", "an option is given once")
    check(generate(*hot) != generate(*hot[:-1], "4"), "another seed draws otherwise")


def refusals():
    (WORK / "empty.txt").write_text("\n")
    for options, code, words in (
            ((), 64, "one of --prompt, --prompt-file and --prompt-ids"),
            (("--prompt", "a", "--prompt-file", "work/prompt.txt"), 64, "one of --prompt"),
            (("--prompt-file", "work/missing.txt"), 66, "work/missing.txt"),
            (("--prompt-file", "work/empty.txt"), 65, "the prompt is empty"),
            (("--prompt", ""), 65, "the prompt is empty"),
            (("--prompt-ids", "1,999"), 64, "'999'"),
            (("--prompt", "a", "--top-p", "0"), 64, "--top-p"),
            (("--prompt", "a", "--top-p", "1.01"), 64, "--top-p"),
            (("--prompt", "a", "--top-p", "nan"), 64, "--top-p"),
            (("--prompt", "a", "--temperature", "-1"), 64, "--temperature"),
            (("--prompt", "a", "--temperature", "inf"), 64, "--temperature"),
            (("--prompt", "a", "--tokens", "-1"), 64, "--tokens")):
        error = generate(*options, code=code)
        check(words in error and error.count("\n") == 1, f"... in one line that says {words}")


prepare()
run(1, "run", "run.steps=12", "data.eval_every=0")
prompts()
sampling()
refusals()
finish()
