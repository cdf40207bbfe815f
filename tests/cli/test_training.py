#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# Whole runs of the program: equal runs are bit-identical, stop and resume equals going on, the number of data-parallel
# ranks and the ZeRO level change nothing that they must not, and the loss falls.
import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = os.path.abspath(sys.argv[1])
WORK = Path("work")
DECK = """
run: {name: test, steps: 20, device: cpu, threads: 1}
model: {layers: 2, hidden: 48, heads: 6, kv_heads: 3, ffn: 96, seq_len: 32}
parallel: {zero: 1}
schedule: {micro_batch: 2, global_batch: 8}
precision: {compute: fp32}
optimizer: {lr: 3.0e-3, min_lr: 3.0e-4, warmup_steps: 4}
data: {train: [work/text_text_document], split: "90,10,0", eval_every: 7, eval_batches: 2}
checkpoint: {every: 8, keep: 9}
"""
failures = []


def check(condition, what):
    print(("ok    " if condition else "FAIL  ") + what)
    if not condition:
        failures.append(what)


def run(ranks, name, *overrides, code=0):
    """Runs the deck in work/NAME on so many ranks and returns its standard error."""
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), PROGRAM, "work/deck.yaml",
               f"run.dir=work/{name}", *overrides]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if result.returncode != code:
        print(result.stdout[-2000:] + result.stderr[-2000:])
    check(result.returncode == code, f"{name}: exit code {code} ({result.returncode})")
    return result.stderr


def metrics(name):
    lines = [json.loads(line) for line in (WORK / name / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["timing"]
    return lines


def training_only(lines):
    return [{key: value for key, value in line.items() if not key.startswith("valid")} for line in lines]


def files(name, step):
    folder = WORK / name / "checkpoints" / f"step-{step:08d}"
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def prepare():
    WORK.mkdir(exist_ok=True)
    subprocess.run(["rm", "-rf"] + [str(p) for p in WORK.iterdir()], check=True)
    (WORK / "deck.yaml").write_text(DECK)
    words = ["the", "old", "ship", "sails", "over", "a", "dark", "sea", "and", "comes", "home", "again"]
    with open(WORK / "text.jsonl", "w") as out:
        state = 1
        for _ in range(60):
            text = []
            for _ in range(40):
                state = (state * 1103515245 + 12345) % 2**31
                text.append(words[state // 65536 % len(words)])
            out.write(json.dumps({"text": " ".join(text)}) + "\n")
    subprocess.run([PROGRAM, "preprocess", "--input", "work/text.jsonl", "--output-prefix", "work/text", "--tokenizer",
                    "bytes", "--append-eod"], check=True, stdin=subprocess.DEVNULL, capture_output=True)


def equal_runs():
    run(2, "first")
    run(2, "second")
    check(metrics("first") == metrics("second"), "two equal runs have equal metrics")
    check(files("first", 20) == files("second", 20), "two equal runs have equal checkpoint files")
    losses = [line["loss"] for line in metrics("first")]
    check(len(losses) == 20 and losses[-1] < 0.7 * losses[0], f"the loss falls ({losses[0]:.3f} to {losses[-1]:.3f})")
    check([line["step"] for line in metrics("first") if "valid_loss" in line] == [7, 14, 20],
          "evaluations at every seventh step and after the last")


def resumes():
    # In warm-up, at an evaluation, at a save, and one step before the end.
    for stop in (3, 7, 8, 19):
        name = f"stop{stop}"
        run(2, name, f"run.stop_after={stop}")
        check(len(metrics(name)) == stop, f"{name}: stopped after step {stop}")
        run(2, name)
        # The evaluation after the last step of a stopped run is an extra one; all else is equal.
        same = training_only(metrics(name)) == training_only(metrics("first"))
        check(same, f"{name}: metrics as of the uninterrupted run")
        check(files(name, 20) == files("first", 20), f"{name}: checkpoint files as of the uninterrupted run")
    run(2, "first")
    check(files("first", 20) == files("second", 20), "resuming a finished run changes nothing")


def layouts():
    run(2, "zero0", "parallel.zero=0")
    check(metrics("zero0") == metrics("first"), "ZeRO-0 and ZeRO-1 have equal metrics")
    run(1, "dp1", "schedule.micro_batch=8")
    run(4, "dp4")
    for name in ("dp1", "dp4"):
        worst = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(metrics(name), metrics("first")))
        check(worst <= 1e-6, f"{name} and dp2 agree in 20 losses to 1e-6 ({worst:.1e})")
    run(1, "moved", "run.stop_after=11", "schedule.micro_batch=4")
    run(4, "moved")
    worst = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(metrics("moved"), metrics("first")))
    check(worst <= 1e-6 and len(metrics("moved")) == 20, f"1 rank, stopped, gone on with 4 agrees too ({worst:.1e})")


def precisions():
    bf16 = "precision.compute=bf16"
    text = run(2, "bf16", bf16)
    check(text.count("no bf16 products") <= 1, "at most one line about the processor's bf16 products")
    worst = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(metrics("bf16"), metrics("first")))
    check(0 < worst <= 3e-2, f"bf16 and fp32 agree in 20 losses to 3e-2 ({worst:.1e})")
    run(2, "bf16stop", bf16, "run.stop_after=8")
    run(2, "bf16stop", bf16)
    check(training_only(metrics("bf16stop")) == training_only(metrics("bf16")) and
          files("bf16stop", 20) == files("bf16", 20), "bf16: resumed equals uninterrupted, files and metrics")
    run(2, "bf16zero0", bf16, "parallel.zero=0")
    check(metrics("bf16zero0") == metrics("bf16"), "bf16: ZeRO-0 and ZeRO-1 have equal metrics")
    run(2, "block", bf16, "schedule.recompute=block", "run.stop_after=10")
    run(2, "block", bf16, "schedule.recompute=selective", "schedule.recompute_modules=[mlp,norm]")
    check(training_only(metrics("block")) == training_only(metrics("bf16")),
          "recompute changes nothing, also when the policy changes on resume")


def refusals():
    text = run(2, "first", "model.hidden=96", code=84)
    check("model.hidden" in text and "optimizer" not in text, "another model is refused with what differs")
    text = run(2, "first", "checkpoint.resume=never", code=73)
    check("run.overwrite" in text, "a fresh start over a run is refused, with the remedy")
    run(2, "first", "checkpoint.resume=never", "run.overwrite=true")
    check(metrics("first") == metrics("second"), "overwriting starts from the beginning")
    run(2, "never", "checkpoint.resume=work/nowhere", code=66)


prepare()
equal_runs()
resumes()
layouts()
precisions()
refusals()
print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
