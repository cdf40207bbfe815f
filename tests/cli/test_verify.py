#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# `verify` compares layouts: equal ones, ones that differ and what it says then, and what it refuses.
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, check, finish, prepare  # noqa: E402


def verify(ranks, *arguments):
    """Exit code and both outputs of verify on work/deck.yaml."""
    launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] if ranks > 1 else []
    result = subprocess.run([*launcher, PROGRAM, "verify", "work/deck.yaml", *arguments], stdin=subprocess.DEVNULL,
                            capture_output=True, text=True, timeout=120)
    return result.returncode, result.stdout, result.stderr


prepare()
code, out, _ = verify(2)
check(code == 0 and out.startswith("verify: 2 ranks: tensor 1, pipeline 1, data 2 (ZeRO-1), 2 micro-batches of 2\n"
                                   "against 1 rank: tensor 1, pipeline 1, data 1 (ZeRO-0), 4 micro-batches of 2\n")
      and out.endswith("they train the same model\n"), "two data-parallel ranks against one")
check("initial weights" in out and "parameters after step 3" in out, "all quantities are named")
code, out, _ = verify(2, "--steps", "2", "parallel.zero=0", "--against", "parallel.zero=1")
check(code == 0 and "parameters after step 2" in out and "\nagainst 1 rank" in out, "against a layout that is named")
code, out, _ = verify(1, "schedule.recompute=block", "--against", "schedule.recompute=none")
check(code == 0 and out.count("all equal in every bit") == 6, "recompute changes no bit")
code, out, _ = verify(2, "precision.compute=bf16")
check(code == 0, "in bf16")
code, out, _ = verify(2, "--against", "run.seed=99 data.seed=1234")
check(code == 1 and "first that differs: initial weights, model.embed_tokens.weight: difference" in out
      and out.endswith("they differ\n"), "other weights differ from the start")
code, out, _ = verify(1, "--steps", "2", "precision.compute=fp64", "--against", "optimizer.weight_decay=0")
check(code == 1 and "first that differs: losses, step 2" in out, "fp64 tells a missing weight decay")
for arguments, expected, text in ((["--against", "parallel.data=1"], 78, "parallel.data"),
                                  (["--against", "nonsense"], 64, "nonsense"),
                                  (["--steps", "0"], 64, "--steps"),
                                  (["--dump", "work/x.h5", "--against", "parallel.zero=0"], 64, "--against"),
                                  (["--against", "parallel.shard=4"], 78, "takes 4 ranks, but the job has 2")):
    code, _, err = verify(2, *arguments)
    check(code == expected and text in err and err.count("llmtrain: error") <= 1,
          f"{' '.join(arguments)}: exit code {expected} ({code}), and why")
check(not os.path.exists("work/x.h5"), "nothing was written")
finish()
