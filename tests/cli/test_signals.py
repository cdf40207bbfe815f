#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# Stopping on request: a signal to one rank or to mpirun at any moment, or the walltime, stops all ranks after the same
# step; they save and return 75, and the resumed run is the uninterrupted one bit for bit. A second signal ends the job
# at once, and so does SIGTERM at mpirun; then the last save is what the next start goes on from.
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import WORK, Job, check, checkpoints, files, finish, metrics, prepare, run, training_only  # noqa: E402


def endless(save_every=7, eval_every=2, eval_batches=20):
    """So many steps that no run comes to its end by itself; most of the time goes into evaluations."""
    return ("run.steps=20000", f"checkpoint.every={save_every}", f"data.eval_every={eval_every}",
            f"data.eval_batches={eval_batches}")


LONG = endless()


def stopped(job, why):
    """Waits for the job's end by `why`; returns the step that it stopped after."""
    out, _ = job.end(75)
    step = len(metrics(job.name))
    check(f"stopping after step {step}: {why}" in out, f"{job.name}: says that it stops after step {step}: {why}")
    check(checkpoints(job.name)[-1] == f"step-{step:08}", f"{job.name}: saved where it stopped")
    return step


def saves_are_kept(name):
    """The newest save is one of the last that were due (LONG: every 7 steps), however fast the machine was."""
    made, saves = len(metrics(name)), checkpoints(name)
    newest = int(saves[-1].removeprefix("step-")) if saves else 0
    return 0 < newest <= made < newest + 14


def stop_by(name, number, whom):
    job = Job(name, *LONG)
    job.wait_for_step(4)
    os.kill(whom(job), number)
    return stopped(job, signal.Signals(number).name)


def before_step_1(name):
    """Asked for while the rank starts, or at the latest before its first step, where it holds itself (llmtrain help
    inject): then the others are past what they agree on for that step."""
    os.environ["LLMTRAIN_INJECT"] = "phase=step,kind=sigstop,rank=1,step=1"
    job = Job(name, *LONG)
    del os.environ["LLMTRAIN_INJECT"]
    rank = job.rank(1)
    os.kill(rank, signal.SIGUSR2)
    job.wait_for(lambda: "State:\tT" in Path(f"/proc/{rank}/status").read_text(), "held rank")
    os.kill(rank, signal.SIGCONT)
    step = stopped(job, "SIGUSR2")
    check(step <= 2, f"{name}: one step is made, or two ({step})")
    return step


def during_evaluation(name):
    """A step's line is written after its evaluation, so rank 0 is held until it is caught with an odd number of lines:
    in the long evaluation of the step after them. What is asked for in it happens after one step more."""
    job = Job(name, *endless(eval_batches=10000))
    rank = job.rank(0)
    job.wait_for_step(1)
    made = 0
    while made % 2 == 0:
        time.sleep(0.3)  # a step takes a hundredth of it
        os.kill(rank, signal.SIGSTOP)
        made = job.steps()
        if made % 2 == 1:
            os.kill(job.rank(1), signal.SIGUSR1)
        os.kill(rank, signal.SIGCONT)
    step = stopped(job, "SIGUSR1")
    check(step == made + 2, f"{name}: asked for in the evaluation of step {made + 1}, stopped after step {step}")
    return step


def during_save(name):
    """Rank 0 is held when the folder of an unfinished save is seen, until one is caught; then it is told to stop."""
    job = Job(name, *endless(save_every=1, eval_every=0))
    rank = job.rank(0)
    caught = False
    while not caught:
        job.wait_for(lambda: list((WORK / name).glob("checkpoints/*.tmp.*")), "save")
        os.kill(rank, signal.SIGSTOP)
        caught = bool(list((WORK / name).glob("checkpoints/*.tmp.*")))
        if caught:
            os.kill(rank, signal.SIGUSR1)
        os.kill(rank, signal.SIGCONT)
    return stopped(job, "SIGUSR1")


def by_timeout(name):
    """`timeout` sends its signal twice, to mpirun and to its own group: that is one request. SIGALRM ends its wait."""
    job = Job(name, *LONG, prefix=["timeout", "--preserve-status", "-s", "USR1", "1000"])
    job.wait_for_step(2)
    os.kill(job.process.pid, signal.SIGALRM)
    return stopped(job, "SIGUSR1")


def by_walltime(name):
    step = stopped(Job(name, *LONG, "run.max_walltime=4"), "run.max_walltime")
    lines = (WORK / name / "metrics.jsonl").read_text().splitlines()
    # A busy machine may take long over any step, so the end is no measure; the last two steps are made on request.
    seconds = sum(json.loads(line)["timing"]["step_seconds"] for line in lines[:-2])
    check(seconds < 4, f"{name}: no step is begun that the 4 s have no room for ({seconds:.1f} s before)")
    return step


def by_walltime_in_a_stall(name):
    """A rank that is held over the walltime's end: the others wait for it, and then no further step is begun."""
    job = Job(name, *LONG, "run.max_walltime=10")
    job.wait_for_step(1)
    rank = job.rank(1)
    os.kill(rank, signal.SIGSTOP)
    time.sleep(0.5)  # the others come to where they wait
    before = job.steps()
    time.sleep(10)
    os.kill(rank, signal.SIGCONT)
    step = stopped(job, "run.max_walltime")
    check(step <= before + 2, f"{name}: held after step {before}, stopped after step {step}")
    return step


def by_ending_mpirun(name):
    """Open MPI 4 kills its ranks about a second after it has passed SIGTERM on, and returns 1."""
    job = Job(name, *LONG)
    job.wait_for_step(8)
    ranks = [job.rank(0), job.rank(1)]
    job.process.send_signal(signal.SIGTERM)
    job.process.communicate(timeout=200)
    code = job.process.returncode
    check(code not in (0, 75), f"{name}: SIGTERM at mpirun gives no code that means success ({code})")
    end = time.monotonic() + 30
    while any(Path(f"/proc/{rank}").exists() for rank in ranks) and time.monotonic() < end:
        time.sleep(0.05)
    check(not any(Path(f"/proc/{rank}").exists() for rank in ranks), f"{name}: no rank is left behind")
    check(saves_are_kept(name), f"{name}: what was saved is there")
    return len(metrics(name))


def stop_and_resume():
    steps = {
        "one-rank": stop_by("one-rank", signal.SIGUSR1, lambda job: job.rank(1)),
        "rank-0": stop_by("rank-0", signal.SIGTERM, lambda job: job.rank(0)),
        "mpirun": stop_by("mpirun", signal.SIGUSR1, lambda job: job.process.pid),
        "before-step-1": before_step_1("before-step-1"),
        "in-evaluation": during_evaluation("in-evaluation"),
        "in-save": during_save("in-save"),
        "timeout": by_timeout("timeout"),
        "walltime": by_walltime("walltime"),
        "stall": by_walltime_in_a_stall("stall"),
        "ended": by_ending_mpirun("ended"),
    }
    end = max(steps.values()) + 3
    run(2, "whole", *LONG, f"run.stop_after={end}")
    for name, step in steps.items():
        run(2, name, *LONG, f"run.stop_after={end}")
        same = training_only(name) == training_only("whole")
        if name not in ("in-evaluation", "in-save"):  # these evaluated differently until they were stopped
            same = same and metrics(name) == metrics("whole")
        check(same, f"{name}: stopped after {step}, metrics as of the uninterrupted run")
        check(files(name, end) == files("whole", end), f"{name}: checkpoint files as of the uninterrupted run")


def second_signal():
    """Rank 0 is held, so that rank 1 cannot come to the next boundary."""
    job = Job("twice", *LONG)
    job.wait_for_step(8)  # past a save
    held, rank = job.rank(0), job.rank(1)
    os.kill(held, signal.SIGSTOP)
    try:
        os.kill(rank, signal.SIGUSR1)
        time.sleep(0.3)
        check(job.process.poll() is None, "the first signal ends nothing at once")
        os.kill(rank, signal.SIGUSR1)
        job.end(128 + signal.SIGUSR1)
    finally:
        try:
            os.kill(held, signal.SIGCONT)
        except ProcessLookupError:
            pass
    check(saves_are_kept("twice"), "what was saved is there")
    run(2, "twice", *LONG, f"run.stop_after={len(metrics('twice')) + 2}")


def without_saves():
    job = Job("unsaved", *endless(save_every=0))
    job.wait_for_step(3)
    os.kill(job.rank(1), signal.SIGUSR1)
    _, err = job.end(128 + signal.SIGUSR1)
    check("nothing is saved" in err, "a stop without saves is warned of and is no 75")


prepare()
stop_and_resume()
second_signal()
without_saves()
finish()
