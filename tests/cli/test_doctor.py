#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 4
# `doctor` measures every rank, pair and group of a layout; timings are not looked at, only that they are there.
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, check, finish, prepare  # noqa: E402


def doctor(ranks, *arguments):
    launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks > 1 else []
    result = subprocess.run([*launcher, PROGRAM, "doctor", "--mebibytes", "1", *arguments],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    return result.returncode, result.stdout, result.stderr


prepare()
code, out, err = doctor(1)
check(code == 0 and re.search(r"\n +0  \S+ +\S+ +\d+ +[1-9][\d.]* \(100%\) +[\d.]+ \(100%\)\n", out),
      f"one rank, no deck: nothing to compare with {out}{err}")
check("group" not in out and "a direction" not in out, "one rank has no links")
code, out, err = doctor(3, "--slow", "0")
rates = re.findall(r"\n +[012] +(?:[\d.]+ +)*-(?: +[\d.]+)*", out)
check(code == 0 and len(rates) == 3 and "0.00" not in "".join(rates), f"three ranks: every pair has a rate {out}{err}")
check(re.search(r"\nshard +0-2 ", out), "without a deck all ranks are one data-parallel group")
code, out, err = doctor(4, "--slow", "0", "work/deck.yaml", "model.kv_heads=6", "parallel.tensor=2",
                        "precision.compute=bf16")
groups = re.findall(r"\n(\w+) +(\d[\d, -]*\d) ", out.partition("\ngroup")[2])
check(code == 0 and groups == [("tp", "0-1"), ("tp", "2-3"), ("shard", "0, 2"), ("shard", "1, 3"), ("world", "0-3")],
      f"the groups of a deck {groups} {out}{err}")
check("bf16 product" in out, "the product in the deck's precision")
code, out, err = doctor(2, "--slow", "1")
named = "of the median's speed" in out
check(code == (1 if named else 0), "exit code 1 if something is named")
for arguments, expected in ((["--slow", "2"], 64), (["--repeats", "0"], 64), (["work/none.yaml"], 66),
                            (["work/deck.yaml", "parallel.tensor=2"], 78)):
    code, out, err = doctor(1, *arguments)
    check(code == expected and err, f"{arguments}: {expected} ({code}: {err.strip()})")
finish()
