#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# Whole runs with tensor parallelism: they train as one rank does, stop and resume to the same bits, other layouts take
# their checkpoint over, one rank generates from it, and what cannot be cut is refused by all ranks at once.
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, check, files, finish, metrics, prepare, run  # noqa: E402

# 257 bytes and marks over two ranks: 288 rows inside, 113 true ones on the second rank.
GPT = ["model.family=gpt", "model.kv_heads=6", "model.qkv_bias=true", "model.activation=gelu_tanh",
       "model.positions=learned", "model.tied=true", "model.dropout=0.1"]
ONE_KV_HEAD = ["model.kv_heads=1", "model.qk_norm=true"]
CUTS = {"plain": ["parallel.tensor=2", "parallel.sequence=false"], "sequence": ["parallel.tensor=2"]}


def worst(key, a, b):
    """Largest relative difference of a number that two runs report, and how often they do."""
    pairs = [(x[key], y[key]) for x, y in zip(metrics(a), metrics(b)) if key in x and key in y]
    return max(abs(x - y) / y for x, y in pairs), len(pairs)


prepare()
for model, keys in (("gpt", GPT), ("llama", ONE_KV_HEAD)):
    run(1, f"{model}-one", *keys)
    for cut, parallel in CUTS.items():
        name = f"{model}-{cut}"
        run(2, name, *keys, *parallel)
        for key, expected in (("loss", 20), ("valid_loss", 3), ("grad_norm", 20)):
            difference, count = worst(key, name, f"{model}-one")
            check(count == expected and difference <= 1e-5, f"{name}: {key} as on one rank ({difference:.1e})")
        run(2, name + "-stopped", *keys, *parallel, "run.stop_after=9")
        run(2, name + "-stopped", *keys, *parallel)
        check(files(name + "-stopped", 20) == files(name, 20), f"{name}: resumed equals uninterrupted")

for to, ranks, parallel in (("one rank", 1, []), ("data parallelism", 2, []),
                            ("a pipeline", 2, ["parallel.pipeline=2"])):
    name = "moved-to-" + to.replace(" ", "-")
    run(2, name, *GPT, *CUTS["sequence"], "run.stop_after=9")
    run(ranks, name, *GPT, *parallel)
    difference, count = worst("loss", name, "gpt-one")
    check(count == 20 and difference <= 1e-5, f"{to} goes on from tensor parallelism's checkpoint ({difference:.1e})")
run(1, "moved-here", *GPT, "run.stop_after=9")
run(2, "moved-here", *GPT, *CUTS["sequence"])
difference, count = worst("loss", "moved-here", "gpt-one")
check(count == 20 and difference <= 1e-5, f"tensor parallelism goes on from one rank's checkpoint ({difference:.1e})")
manifest = json.loads(Path("work/gpt-plain/checkpoints/step-00000020/manifest.json").read_text())
shapes = [part["shape"] for tensor in manifest["tensors"] for part in (tensor, *tensor["pieces"])]
check([257, 48] in shapes and not any(288 in shape for shape in shapes), "padding is not part of a checkpoint")
sample = subprocess.run([PROGRAM, "generate", "work/gpt-sequence/checkpoints", "--prompt", "the old", "--tokens", "20"],
                        stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
check(sample.returncode == 0 and sample.stdout.startswith(b"the old"), "one rank generates from the checkpoint")

refused = run(2, "bad", "parallel.tensor=4", "model.kv_heads=2", code=78)
check("model.heads 6 is not divisible by parallel.tensor 4: tensor may be 2\n" in refused, "the nearest choice")
check("2 ranks are not divisible by parallel.tensor x parallel.pipeline = 4 x 1 = 4" in refused, "too few ranks")
check(not Path("work/bad").exists(), "refused before any work")
finish()
