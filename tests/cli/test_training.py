#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# Whole runs of the program: equal runs are bit-identical, stop and resume equals going on, the number of data-parallel
# ranks and the ZeRO level change nothing that they must not, and the loss falls.
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import check, files, finish, metrics, prepare, run, training_only  # noqa: E402


def equal_runs():
    run(2, "first")
    run(2, "second")
    check(metrics("first") == metrics("second"), "two equal runs have equal metrics")
    check(files("first", 20) == files("second", 20), "two equal runs have equal checkpoint files")
    losses = [line["loss"] for line in metrics("first")]
    check(len(losses) == 20 and losses[-1] < 0.7 * losses[0], f"the loss falls ({losses[0]:.3f} to {losses[-1]:.3f})")
    check([line["step"] for line in metrics("first") if "valid_loss" in line] == [7, 14, 20],
          "evaluations at every seventh step and after the last")
    for every in (0, 1):
        run(2, f"eval{every}", f"data.eval_every={every}")
        same = training_only(f"eval{every}") == training_only("first")
        check(same, f"data.eval_every {every} changes nothing in training")


def resumes():
    # In warm-up, at an evaluation, at a save, and one step before the end.
    for stop in (3, 7, 8, 19):
        name = f"stop{stop}"
        run(2, name, f"run.stop_after={stop}")
        check(len(metrics(name)) == stop, f"{name}: stopped after step {stop}")
        run(2, name)
        check(metrics(name) == metrics("first"), f"{name}: metrics as of the uninterrupted run")
        check(files(name, 20) == files("first", 20), f"{name}: checkpoint files as of the uninterrupted run")
    run(2, "first")
    check(files("first", 20) == files("second", 20), "resuming a finished run changes nothing")


def layouts():
    run(2, "zero0", "parallel.zero=0")
    check(metrics("zero0") == metrics("first"), "ZeRO-0 and ZeRO-1 have equal metrics")
    for zero in (1, 3):
        run(2, f"one{zero}", f"parallel.zero={zero}", "parallel.persistence=0", "schedule.micro_batch=4")
    check(metrics("one3") == metrics("one1"), "with one micro-batch a step ZeRO-1 and ZeRO-3 have equal metrics")
    run(2, "levels", "parallel.zero=3", "schedule.micro_batch=4", "run.stop_after=11")
    run(2, "levels", "parallel.zero=2", "schedule.micro_batch=4")
    check(metrics("levels") == metrics("one1"), "stopped under ZeRO-3, gone on with ZeRO-2: the same metrics")
    run(1, "dp1", "schedule.micro_batch=8")
    run(4, "dp4")
    for name in ("dp1", "dp4"):
        pairs = [(a[key], b[key]) for a, b in zip(metrics(name), metrics("first")) for key in ("loss", "grad_norm")]
        worst = max(abs(a - b) / b for a, b in pairs)
        check(len(pairs) == 40 and worst <= 1e-5, f"{name} and dp2 agree in 20 losses and norms to 1e-5 ({worst:.1e})")
        worst = max(abs(a - b) / b for a, b in pairs[::2])
        check(worst <= 1e-6, f"{name} and dp2 agree in 20 losses to 1e-6 ({worst:.1e})")
    run(1, "moved", "run.stop_after=11", "schedule.micro_batch=4")
    run(4, "moved")
    worst = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(metrics("moved"), metrics("first")))
    check(worst <= 1e-6 and len(metrics("moved")) == 20, f"1 rank, stopped, gone on with 4 agrees too ({worst:.1e})")


def exposed():
    """Communication that nothing hid: none on one rank; on two some, which is a part of the step."""
    for name, ranks in (("dp1", 1), ("first", 2)):
        timings = [json.loads(line)["timing"] for line in Path(f"work/{name}/metrics.jsonl").read_text().splitlines()]
        steps = [timing["exposed"] for timing in timings]
        sums = all(abs(step["total"] - sum(step[axis] for axis in step if axis != "total")) < 1e-9 for step in steps)
        named = set(steps[0]) == {"total", "tensor", "pipeline", "data", "world"}
        check(sums and named, f"{name}: the axes make the total")
        totals = [step["total"] for step in steps]
        if ranks == 1:
            check(not any(totals), f"{name}: a rank alone waits for nobody")
        else:
            check(any(totals) and all(0 <= total <= timing["step_seconds"] for total, timing in zip(totals, timings)),
                  f"{name}: exposed communication is a part of the step")
        table = Path(f"work/{name}/log.txt").read_text()
        check(("step/exposed " in table) == (ranks == 2), f"{name}: the timing table has it where there is any")


def precisions():
    bf16 = "precision.compute=bf16"
    text = run(2, "bf16", bf16)
    check(text.count("no bf16 products") <= 1, "at most one line about the processor's bf16 products")
    worst = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(metrics("bf16"), metrics("first")))
    check(0 < worst <= 3e-2, f"bf16 and fp32 agree in 20 losses to 3e-2 ({worst:.1e})")
    run(2, "bf16stop", bf16, "run.stop_after=8")
    run(2, "bf16stop", bf16)
    check(training_only("bf16stop") == training_only("bf16") and
          files("bf16stop", 20) == files("bf16", 20), "bf16: resumed equals uninterrupted, files and metrics")
    run(2, "bf16zero0", bf16, "parallel.zero=0")
    check(metrics("bf16zero0") == metrics("bf16"), "bf16: ZeRO-0 and ZeRO-1 have equal metrics")
    run(2, "block", bf16, "schedule.recompute=block", "run.stop_after=10")
    run(2, "block", bf16, "schedule.recompute=selective", "schedule.recompute_modules=[mlp,norm]")
    check(training_only("block") == training_only("bf16"),
          "recompute changes nothing, also when the policy changes on resume")


def fp8():
    keys = ("precision.compute=bf16", "precision.linear=fp8")
    run(2, "fp8", *keys)
    check("E4M3" in Path("work/fp8/log.txt").read_text(), "the summary names the products in fp8")
    worst = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(metrics("fp8"), metrics("bf16")))
    check(0 < worst <= 3e-2, f"fp8 and bf16 agree in 20 losses to 3e-2 ({worst:.1e})")
    run(2, "fp8stop", *keys, "run.stop_after=8")
    text = run(2, "fp8stop", keys[0], code=84)
    check("precision.linear" in text, "products in other numbers are another run, unless allowed")
    run(2, "fp8stop", *keys, "run.stop_after=14")
    run(2, "fp8stop", *keys)
    check(training_only("fp8stop") == training_only("fp8") and
          files("fp8stop", 20) == files("fp8", 20), "fp8: resumed equals uninterrupted, files and metrics")
    run(2, "fp8kept", *keys, "run.stop_after=8")
    run(2, "fp8kept", *keys, "precision.keep_fp8=true")
    check(training_only("fp8kept") == training_only("fp8"), "copies that are kept, from a resume on, change nothing")


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
exposed()
precisions()
fp8()
refusals()
finish()
