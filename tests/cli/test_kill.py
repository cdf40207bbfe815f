#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# Kills a rank, or mpirun, at random moments of runs that save often; whatever was lost, the next start goes on and the
# end equals an uninterrupted run bit for bit. The second argument is the number of kills (default 6).
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, check, command, files, finish, metrics, prepare, run  # noqa: E402

KILLS = int(sys.argv[2]) if len(sys.argv) > 2 else 6
OPTIONS = ("checkpoint.every=2", "checkpoint.keep=2", "run.steps=40", "data.eval_every=9")


def ranks_of(job):
    """Process ids of the ranks that this mpirun started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == job.pid and os.readlink(entry / "exe") == os.path.realpath(PROGRAM):
                found.append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue
    return found


def killed_run(name, seconds, whole_job):
    """Starts the run and kills it after so many seconds; False if it had ended before."""
    job = subprocess.Popen(command(2, name, *OPTIONS), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    ranks = ranks_of(job)
    if whole_job:
        job.send_signal(signal.SIGKILL)
    elif ranks:
        os.kill(random.choice(ranks), signal.SIGKILL)
    code = job.wait(timeout=60)
    # Without mpirun the ranks notice by themselves; a start beside them would be another run in the same folder.
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{rank}").exists() for rank in ranks) and time.monotonic() < deadline:
        time.sleep(0.05)
    check(time.monotonic() < deadline, f"{name}: no rank is left behind")
    return code != 0


random.seed(7)
prepare()
begin = time.monotonic()
run(2, "whole", *OPTIONS)
length = time.monotonic() - begin
hits = 0
for kill in range(KILLS):
    subprocess.run(["rm", "-rf", "work/killed"], check=True)
    moment = random.uniform(0.2, 0.9) * length
    hits += killed_run("killed", moment, whole_job=kill % 3 == 2)
    run(2, "killed", *OPTIONS)
    check(metrics("killed") == metrics("whole"), f"killed after {moment:.2f} s: metrics as of the uninterrupted run")
    check(files("killed", 40) == files("whole", 40), f"killed after {moment:.2f} s: the same last checkpoint")
check(hits >= KILLS // 2, f"{hits} of {KILLS} runs were killed before their end")
finish()
