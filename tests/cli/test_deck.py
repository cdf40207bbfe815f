#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line around decks: exit codes, places in messages, print-deck round trips, help, suggestions."""
import os
import subprocess
import sys
import tempfile

BINARY = os.path.abspath(sys.argv[1])
os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
failures = []


def run(*arguments, ranks=0, env=None):
    launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks else []
    done = subprocess.run(launcher + [BINARY, *arguments], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout, done.stderr


def expect(condition, what, *seen):
    if not condition:
        failures.append(what)
        print("FAILED:", what, *seen, sep="\n  ")


def write(name, text):
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)


def test_usage():
    code, out, err = run()
    expect(code == 64 and "deck or a command" in err, "no arguments: 64", code, err)
    code, out, err = run("--help")
    expect(code == 0 and "print-deck" in out and err == "", "--help", code, out, err)
    expect(run("help")[1] == out and run("-h")[1] == out, "help and -h print what --help prints")
    code, out, err = run("--version")
    facts = ("git", "compiler", "MPI", "HDF5", "oneDNN", "CUDA")
    expect(code == 0 and all(word in out for word in facts), "--version", out)
    code, out, err = run("print-dek")
    expect(code == 64 and "did you mean 'print-deck'?" in err, "misspelt command: 64 with a suggestion", code, err)
    code, out, err = run("--frobnicate")
    expect(code == 64 and err.startswith("llmtrain: error: unknown option '--frobnicate'"), "unknown option", code, err)
    code, out, err = run("run.steps=5")
    expect(code == 64 and "before the deck" in err, "an override before the deck: 64", code, err)
    for bad in (("print-deck", "deck.yaml", "steps"), ("print-deck", "--frobnicate"), ("deck.yaml", "--steps", "5"),
                ("help", "a", "b"), ("--version", "x")):
        code, out, err = run(*bad)
        expect(code == 64 and err.count("\n") == 1, f"{bad}: 64 and one line", code, err)


def test_missing():
    for bad in ("missing.yaml", "no/such/deck", "nothinglikeatool", "."):
        code, out, err = run(bad)
        expect(code == 66 and err.count("\n") == 1, f"deck '{bad}': 66 and one line", code, err)
        code, out, err = run("print-deck", bad)
        expect(code == 66, f"print-deck '{bad}': 66", code, err)
    code, out, err = run("missing.yaml", "run.stepz=4")
    expect(code == 66 and "missing.yaml" in err, "a missing deck comes before its overrides", code, err)


def test_places():
    write("bad.yaml", "run:\n  steps: 030\noptimizer:\n  lr: 1e-3\n  learing_rate: 1\n  lr: 2e-3\n")
    code, out, err = run("bad.yaml", "run.seed=x")
    lines = err.splitlines()
    expect(code == 78, "bad deck: 78", code, err)
    for line in ("bad.yaml:5:3: unknown key 'learing_rate' in 'optimizer'; did you mean 'lr'?",
                 "bad.yaml:6:3: duplicate key 'lr'; it is first set in line 4"):
        expect(line in lines, f"line: {line}", err)
    expect(any(line.startswith("bad.yaml:2:10: run.steps: '030' ") for line in lines), "place of a value", err)
    place = "command line: run.seed=x: run.seed: 'x' "
    expect(any(line.startswith(place) for line in lines), "command line value", err)


def test_print_deck():
    code, template, err = run("print-deck")
    expect(code == 0 and "# " in template, "print-deck without a deck", code, err)
    write("template.yaml", template)
    code, resolved, err = run("print-deck", "template.yaml")
    expect(code == 0, "the printed deck reads back", code, err)
    write("empty.yaml", "{}\n")
    expect(run("print-deck", "empty.yaml")[1] == resolved, "it reads back to the defaults")
    write("resolved.yaml", resolved)
    expect(run("print-deck", "resolved.yaml")[1] == resolved, "a resolved deck prints itself")
    code, out, err = run("print-deck", "empty.yaml", "model.rope.theta=1e4", "optimizer.betas=[0.9, 0.999]")
    expect("    theta: 10000\n" in out and "  betas: [0.9, 0.999]\n" in out, "overrides show", out, err)
    code, german, err = run("print-deck", "empty.yaml", env={"LC_ALL": "de_DE.UTF-8"})
    expect(german == resolved, "the locale changes nothing", german, err)


def test_help():
    for topic in ("optimizer.lr", "lr"):
        code, out, err = run("help", topic)
        expect(code == 0 and "Peak learning rate." in out and "default  3e-4" in out, f"help {topic}", out, err)
    code, out, err = run("help", "optimizer")
    expect(code == 0 and "optimizer.betas" in out and "optimizer.clip" in out, "help optimizer", out, err)
    code, out, err = run("help", "exit-codes")
    expect(code == 0 and "  78  " in out and "  84  " in out and "   0  " in out, "help exit-codes", out, err)
    code, out, err = run("help", "learning_rate")
    expect(code == 64 and "did you mean 'optimizer.lr'?" in err, "help of another name", code, err)


def test_train():
    write("demo.yaml", "precision: {compute: fp32}\ndata: {train: [x]}\n")
    for ranks in (1, 2):
        code, out, err = run("demo.yaml", "model.hidden=250", "optimizer.warmup_steps=9999", ranks=ranks)
        mine = [line for line in err.splitlines() if line.startswith("command line: ")]
        expect(code == 78 and len(mine) == len(set(mine)) >= 2, f"{ranks} ranks: every error once", code, err)
    code, out, err = run("demo.yaml", ranks=3)
    expect(code == 78 and "4 x 3 = 12: global_batch may be 24 or 36" in err, "batches against ranks", code, err)
    write("default.yaml", "data: {train: [x]}\n")
    code, out, err = run("default.yaml")
    expect(code == 66, "bf16, the default, is built", code, err)
    code, out, err = run("--frobnicate", ranks=2)
    expect(code == 64 and err.count("unknown option") == 1, "a usage error is printed once in the job", code, err)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            test()
sys.exit(1 if failures else 0)
