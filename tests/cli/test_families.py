#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# The GPT family and every option of the Llama family as whole runs, with dropout: what is dropped does not depend on
# ranks and micro-batches, resume equals going on, evaluation does not drop, and a checkpoint generates.
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, check, files, finish, metrics, prepare, run  # noqa: E402

DROPOUT = ["model.dropout=0.1"]
GPT = ["model.family=gpt", "model.kv_heads=6", "model.tied=true"]
LLAMA = ["model.qkv_bias=true", "model.qk_norm=true", "model.rope.scaling={factor: 4, original_max_position: 16}"]


def worst(key, a, b):
    """Largest relative difference of a number that two runs report, and how often they do."""
    pairs = [(x[key], y[key]) for x, y in zip(metrics(a), metrics(b)) if key in x and key in y]
    return max(abs(x - y) / y for x, y in pairs), len(pairs)


def family(name, model):
    model = model + DROPOUT
    one, stopped = f"{name}1", f"{name}-stopped"
    run(2, name, *model)
    run(1, one, *model, "schedule.micro_batch=8")
    difference, count = worst("loss", one, name)
    check(count == 20 and difference <= 1e-6, f"{name}: 1 and 2 ranks agree in 20 losses ({difference:.1e})")
    difference, count = worst("valid_loss", one, name)
    check(count == 3 and difference <= 1e-6, f"{name}: and in 3 evaluations ({difference:.1e})")
    run(2, stopped, *model, "run.stop_after=9")
    run(2, stopped, *model)
    check(files(stopped, 20) == files(name, 20), f"{name}: resumed equals uninterrupted")
    sample = subprocess.run([PROGRAM, "generate", f"work/{name}/checkpoints", "--prompt", "the old", "--tokens", "20"],
                            stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    check(sample.returncode == 0 and sample.stdout.startswith(b"the old"), f"{name}: its checkpoint generates")


prepare()
family("gpt", GPT)
family("llama", LLAMA)
run(2, "plain", *GPT)
check(metrics("plain")[0]["loss"] != metrics("gpt")[0]["loss"], "dropout changes the training loss")
finish()
