#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Every preset trains when it is scaled down: sizes are overridden on the command line, all else stays the model's.
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, WORK, check, finish, metrics, prepare, run  # noqa: E402

# All but the sizes of model.*; optimizer and data so that a few steps learn.
DECK = """
run: {name: twin, steps: 6, device: cpu, threads: 1}
schedule: {micro_batch: 4, global_batch: 4}
precision: {compute: fp32}
optimizer: {lr: 3.0e-3, min_lr: 3.0e-4, warmup_steps: 2}
data: {train: [work/text_text_document], eval_every: 0}
checkpoint: {every: 0}
"""
SIZES = {"layers": 2, "hidden": 48, "heads": 6, "head_dim": 8, "ffn": 96, "seq_len": 32, "vocab": 257}


def model_of(text):
    """The model block of a resolved deck, by key name (those of rope included)."""
    block = re.search(r"^model:\n((?: .*\n)+)", text, re.M).group(1)
    return dict(re.findall(r"^ +(\w+): (\S.*)$", block, re.M))


def names():
    text = subprocess.run([PROGRAM, "help", "model.preset"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  (\S+) +\{", text, re.M)


def twin(name):
    text = subprocess.run([PROGRAM, "print-deck", "work/deck.yaml", f"model.preset={name}"], capture_output=True,
                          text=True, check=True).stdout
    preset = model_of(text)
    sizes = SIZES | {"kv_heads": 6 if preset["kv_heads"] == preset["heads"] else 3}  # grouped as in the preset
    run(1, name, f"model.preset={name}", *(f"model.{key}={value}" for key, value in sizes.items()))
    model = model_of((WORK / name / "deck.yaml").read_text())
    kept = preset.keys() - sizes.keys() - {"vocab_multiple"}
    same = all(model[key] == preset[key] for key in kept)
    check(len(kept) > 10 and same, f"{name}: all but the sizes is the preset's")
    losses = [line["loss"] for line in metrics(name)]
    check(len(losses) == 6 and losses[-1] < losses[0] - 0.1,
          f"{name}: learns, from {losses[0]:.3f} to {losses[-1]:.3f} in {len(losses)} steps")


prepare(DECK)
check(len(names()) == 13, "help lists the presets")
for preset_name in names():
    twin(preset_name)
finish()
