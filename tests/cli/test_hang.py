#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# Ranks that get on no more: the job ends with exit 81 and tells where each rank stands, and the next start trains on to
# the same end; a job that was only held goes on. Ranks that never come, and a run's folder that does not answer.
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, WORK, Job, check, command, finish, metrics, prepare, run  # noqa: E402

SHORT = ("run.steps=8", "checkpoint.every=2", "data.eval_every=0")
LIMIT = "run.hang_timeout=3"


def standings(name):
    """The folders in which the ranks of a run asked each other."""
    return list((WORK / name).glob("standings-*"))


def hung(name, fault, *options, ranks=2):
    """Runs with a fault that makes the job hang; returns standard error, after what every hang must show."""
    line = command(ranks, name, *SHORT, LIMIT, *options)
    done = subprocess.run(line if ranks > 1 else line[line.index(PROGRAM):], stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, timeout=200, env={**os.environ, "LLMTRAIN_INJECT": fault})
    check(done.returncode == 81, f"{name}: exit code 81 ({done.returncode})")
    check(done.stderr.count("no rank has got on for 3 s") == 1, f"{name}: one rank tells\n{done.stderr}")
    told = "error: no rank has got on for 3 s" in (WORK / name / "log.txt").read_text()
    check(told, f"{name}: log.txt has the report")
    report = json.loads((WORK / name / "hang.json").read_text())
    check(len(report["ranks"]) == ranks and report["hang_timeout"] == 3, f"{name}: hang.json has all ranks")
    return done.stderr, report["ranks"]


def goes_on(name, ranks=2):
    """The next start trains to the end that a run without a fault has."""
    err = run(ranks, name, *SHORT)
    check("is taken over" in err, f"{name}: the lock is taken over at once")
    check(not standings(name), f"{name}: nothing but the report is left of the hang")
    check(metrics(name) == metrics(f"whole{ranks}"), f"{name}: metrics as of the uninterrupted run")


def stopped_rank():
    text, ranks = hung("stopped", "phase=step,kind=sigstop,rank=1,step=5")
    named = "rank 1 (" in text and "does not answer: its process is stopped" in text
    check(named, f"the stopped rank is named\n{text}")
    check(text.index("  rank 1 (") < text.index("  rank 0 ("), "the likely cause comes first")
    check(not ranks[1]["answers"] and ranks[0]["answers"], f"the stopped rank did not answer: {ranks}")
    check(ranks[0]["step"] == 5 and ranks[0]["at"] and ranks[0]["waits_for"],
          f"the other one says what it waited for: {ranks[0]}")
    goes_on("stopped")


def stuck_rank():
    _, ranks = hung("stuck", "phase=step,kind=hang,rank=0,step=5")
    check(all(rank["answers"] and rank["still_seconds"] >= 3 for rank in ranks), f"both answer: {ranks}")
    check(ranks[1]["waits_for"] and not ranks[0]["waits_for"], f"one waits, one is stuck by itself: {ranks}")
    goes_on("stuck")


def stuck_save():
    _, ranks = hung("save", "phase=save.piece,kind=hang,rank=1,step=4")
    check(ranks[1]["at"] == "checkpoint", f"the stuck rank says that it saves: {ranks[1]}")
    goes_on("save")


def stuck_background_save():
    """Training goes on meanwhile, until the next save waits for the one that hangs."""
    _, ranks = hung("background", "phase=save.piece,kind=hang,rank=0,step=4", "checkpoint.async=true")
    check(all(rank["step"] > 4 for rank in ranks), f"a later step waits for it: {ranks}")
    check(ranks[0]["waits_for"] == "its save in the background", f"and says so: {ranks[0]}")
    goes_on("background")


def one_rank():
    text, _ = hung("alone", "phase=step,kind=hang,step=5", ranks=1)
    check("rank 0 (" in text and "step 5" in text, f"says where it stands\n{text}")
    goes_on("alone", ranks=1)


def held_as_a_whole():
    """Time in which a process was stopped itself is no hang: a job that was suspended goes on."""
    job = Job("held", "run.steps=3000", "data.eval_every=0", "checkpoint.every=0", LIMIT)
    job.wait_for_step(2)
    ranks = [job.rank(0), job.rank(1)]
    for number, pause in ((signal.SIGSTOP, 8), (signal.SIGCONT, 0)):
        for rank in ranks:
            os.kill(rank, number)
        time.sleep(pause)
    job.end(0)
    check(not (WORK / "held" / "hang.json").exists() and not standings("held"), "held: nothing was judged")


def folder_does_not_answer():
    """Looks into the run's folder hang, and so does a rank: the other speaks for itself."""
    name = "silent"
    os.environ["LLMTRAIN_INJECT"] = "phase=watch,kind=hang,times=0"
    job = Job(name, "run.steps=20000", "data.eval_every=0", "checkpoint.every=0", LIMIT)
    del os.environ["LLMTRAIN_INJECT"]
    job.wait_for_step(2)
    os.kill(job.rank(1), signal.SIGSTOP)
    _, err = job.end(81)
    told = f"the run's folder work/{name} does not answer" in err and "rank 0 (" in err
    check(told, f"{name}: rank 0 says so\n{err}")


def missing_rank():
    """Two of three ranks are llmtrain: they cannot start without the third, which has come to MPI's launcher only."""
    environment = {**os.environ, "LLMTRAIN_INIT_TIMEOUT": "3"}
    line = command(2, "missing", *SHORT)
    done = subprocess.run([*line, ":", "-np", "1", "sleep", "60"], stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, timeout=100, env=environment)
    check(done.returncode == 81, f"a rank that never comes: exit code 81 ({done.returncode})")
    check("has waited 3 s for MPI to start (LLMTRAIN_INIT_TIMEOUT)" in done.stderr, f"and says so\n{done.stderr}")
    done = subprocess.run([PROGRAM, "work/deck.yaml"], stdin=subprocess.DEVNULL, text=True, capture_output=True,
                          env={**os.environ, "LLMTRAIN_INIT_TIMEOUT": "soon"})
    told = "a number of seconds up to 1e9 is needed" in done.stderr
    check(done.returncode == 64 and told, f"a wrong limit: {done.stderr}")


prepare()
for ranks in (1, 2):
    run(ranks, f"whole{ranks}", *SHORT)
stopped_rank()
stuck_rank()
stuck_save()
stuck_background_save()
one_rank()
held_as_a_whole()
folder_does_not_answer()
missing_rank()
finish()
