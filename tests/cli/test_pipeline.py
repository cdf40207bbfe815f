#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# Whole runs with a pipeline: they train as one rank does, stop and resume to the same bits, one rank takes their
# checkpoint over and generates from it, and what cannot be cut is refused by all ranks at once.
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, check, files, finish, metrics, prepare, run  # noqa: E402

GPT = ["model.family=gpt", "model.kv_heads=6", "model.qkv_bias=true", "model.activation=gelu_tanh",
       "model.positions=learned", "model.tied=true", "model.dropout=0.1", "model.layers=4"]
PIPELINES = {"1f1b": ["parallel.pipeline=2"],
             "gpipe": ["parallel.pipeline=2", "schedule.kind=gpipe", "parallel.stage_layers=[1, 3]"],
             "interleaved": ["parallel.pipeline=2", "schedule.kind=interleaved", "schedule.chunks=2"]}


def worst(key, a, b):
    """Largest relative difference of a number that two runs report, and how often they do."""
    pairs = [(x[key], y[key]) for x, y in zip(metrics(a), metrics(b)) if key in x and key in y]
    return max(abs(x - y) / y for x, y in pairs), len(pairs)


prepare()
run(1, "one", *GPT)
for name, pipeline in PIPELINES.items():
    run(2, name, *GPT, *pipeline)
    said = Path(f"work/{name}/log.txt").read_text()
    for key, expected in (("loss", 20), ("valid_loss", 3), ("grad_norm", 20)):
        difference, count = worst(key, name, "one")
        check(count == expected and difference <= 1e-5, f"{name}: {key} as on one rank ({difference:.1e})")
    check("pipeline layers" in said and "stage 1  ranks 1" in said, f"{name}: the summary says who has what")
    run(2, name + "-stopped", *GPT, *pipeline, "run.stop_after=9")
    run(2, name + "-stopped", *GPT, *pipeline)
    check(files(name + "-stopped", 20) == files(name, 20), f"{name}: resumed equals uninterrupted")

run(2, "moved", *GPT, *PIPELINES["1f1b"], "run.stop_after=9")
run(1, "moved", *GPT)
difference, count = worst("loss", "moved", "one")
check(count == 20 and difference <= 1e-5, f"one rank goes on from a pipeline's checkpoint ({difference:.1e})")
sample = subprocess.run([PROGRAM, "generate", "work/gpipe/checkpoints", "--prompt", "the old", "--tokens", "20"],
                        stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
check(sample.returncode == 0 and sample.stdout.startswith(b"the old"), "a pipeline's checkpoint generates")

refused = run(2, "bad", "parallel.pipeline=2", "parallel.stage_layers=[2, 2]", "schedule.kind=interleaved",
              "schedule.micro_batch=8", code=78)
check("adds up to 4 but model.layers is 2: an even split is [1, 1]" in refused, "a wrong cut names the even one")
check("global_batch may be 16, or micro_batch 4" in refused, "too few micro-batches name the next choices")
check(not Path("work/bad").exists(), "refused before any work")
finish()
