#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# Stopping on request: a signal to one rank or to mpirun, or the walltime, stops all ranks after the same step; they save
# and return 75, and the resumed run is the uninterrupted one bit for bit. A second signal ends the job at once.
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import WORK, check, command, files, finish, metrics, prepare, run  # noqa: E402

# So many steps that no run comes to its end by itself; most of the time goes into evaluations.
LONG = ("run.steps=20000", "data.eval_every=2", "data.eval_batches=20", "checkpoint.every=7")


class Job:
    """A run of two ranks in the background."""

    def __init__(self, name, *options, prefix=()):
        self.name = name
        self.process = subprocess.Popen([*prefix, *command(2, name, *LONG, *options)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for(self, condition, what):
        end = time.monotonic() + 200
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{self.name}: no {what}: {self.process.communicate()}")
            time.sleep(0.005)

    def rank(self, number):
        """Process id of a rank that catches signals; 0 if it does not yet."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                status = dict(line.split(":", 1) for line in (entry / "status").read_text().splitlines() if ":" in line)
                environment = (entry / "environ").read_bytes().split(b"\0")
                caught = int(status["SigCgt"], 16) >> (signal.SIGUSR1 - 1) & 1
            except (OSError, KeyError):
                continue
            mine = int(status["PPid"]) == self.process.pid and f"OMPI_COMM_WORLD_RANK={number}".encode() in environment
            if mine and caught:
                return int(entry.name)
        return 0

    def wait_for_step(self, number):
        path = WORK / self.name / "metrics.jsonl"
        self.wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") >= number, f"step {number}")

    def end(self, code):
        out, err = self.process.communicate(timeout=200)
        got = self.process.returncode
        if got != code:
            print(out[-2000:] + err[-2000:])
        check(got == code, f"{self.name}: exit code {code} ({got})")
        return out, err

    def stopped(self, why):
        """Waits for its end by `why`; returns the step that it stopped after."""
        out, _ = self.end(75)
        step = len(metrics(self.name))
        check(f"stopping after step {step}: {why}" in out, f"{self.name}: says that it stops after step {step}, and why")
        check(checkpoints(self.name)[-1] == f"step-{step:08}", f"{self.name}: saved where it stopped")
        return step


def checkpoints(name):
    return sorted(path.name for path in (WORK / name / "checkpoints").glob("step-*"))


def stop_by(name, number, whom):
    job = Job(name)
    job.wait_for_step(4)
    os.kill(whom(job), number)
    return job.stopped(signal.Signals(number).name)


def before_step_1(name):
    job = Job(name)
    job.wait_for(lambda: job.rank(1), "rank 1")
    os.kill(job.rank(1), signal.SIGUSR2)
    step = job.stopped("SIGUSR2")
    check(step == 1, f"{name}: one step is made")
    return step


def by_timeout(name):
    """`timeout` sends its signal twice: that is one request."""
    return Job(name, prefix=["timeout", "--preserve-status", "-s", "USR1", "4"]).stopped("SIGUSR1")


def by_walltime(name):
    begin = time.monotonic()
    step = Job(name, "run.max_walltime=4").stopped("run.max_walltime")
    seconds = time.monotonic() - begin
    check(seconds < 12, f"{name}: 4 s are asked for, {seconds:.1f} s with mpirun, on a machine that may be busy")
    return step


def stop_and_resume():
    stopped = {
        "one-rank": stop_by("one-rank", signal.SIGUSR1, lambda job: job.rank(1)),
        "rank-0": stop_by("rank-0", signal.SIGTERM, lambda job: job.rank(0)),
        "mpirun": stop_by("mpirun", signal.SIGUSR1, lambda job: job.process.pid),
        "before-step-1": before_step_1("before-step-1"),
        "timeout": by_timeout("timeout"),
        "walltime": by_walltime("walltime"),
    }
    end = max(stopped.values()) + 3
    run(2, "whole", *LONG, f"run.stop_after={end}")
    for name, step in stopped.items():
        run(2, name, *LONG, f"run.stop_after={end}")
        check(metrics(name) == metrics("whole"), f"{name}: stopped after {step}, metrics as of the uninterrupted run")
        check(files(name, end) == files("whole", end), f"{name}: checkpoint files as of the uninterrupted run")


def second_signal():
    """Rank 0 is held, so that rank 1 cannot come to the next boundary."""
    job = Job("twice")
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
    check("step-00000007" in checkpoints("twice"), "what was saved is there")
    run(2, "twice", *LONG, "run.stop_after=9")


def without_saves():
    job = Job("unsaved", "checkpoint.every=0")
    job.wait_for_step(3)
    os.kill(job.rank(1), signal.SIGUSR1)
    _, err = job.end(128 + signal.SIGUSR1)
    check("nothing is saved" in err, "a stop without saves is warned of and is no 75")


prepare()
stop_and_resume()
second_signal()
without_saves()
finish()
