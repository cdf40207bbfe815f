#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# Saves that go wrong at every phase: a kill there loses no checkpoint and the next start goes on to the same end, with
# and without checkpoint.async; a failure is reported, training goes on, and too many in a row end the run.
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, WORK, Job, check, checkpoints, command, files, finish, metrics, prepare, run  # noqa: E402

SHORT = ("run.steps=8", "checkpoint.every=2", "checkpoint.keep=2", "data.eval_every=0")
IN_BACKGROUND = ("checkpoint.async=true",)


def injected(name, fault, *options, ranks=2):
    """Runs with a fault; returns the exit code, and standard output and error together."""
    line = command(ranks, name, *SHORT, *options)
    done = subprocess.run(line if ranks > 1 else line[line.index(PROGRAM):], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
                          env={**os.environ, "LLMTRAIN_INJECT": fault})
    return 137 if done.returncode == -9 else done.returncode, done.stdout


def verified(name):
    """Newest step that `checkpoint verify` finds good, with every other one good as well."""
    done = subprocess.run([PROGRAM, "checkpoint", "verify", f"work/{name}/checkpoints"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)
    good = re.findall(r"step-(\d+): good", done.stdout)
    return max(map(int, good), default=0), done.stdout


def same_model(name, other, step):
    """Equal tensors, whatever the decks say."""
    paths = [f"work/{run}/checkpoints/step-{step:08}" for run in (name, other)]
    done = subprocess.run([PROGRAM, "checkpoint", "diff", *paths], stdin=subprocess.DEVNULL, capture_output=True)
    return done.returncode == 0


def phases():
    """The names in `llmtrain help inject`, which a run passes in this order; a short one not the watchdog's."""
    text = subprocess.run([PROGRAM, "help", "inject"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
    names = [line.split()[0] for line in text.split("Phases, each just before\n")[1].splitlines()]
    return [name for name in names if name != "watch"]


def killed_at_every_phase():
    found = phases()
    check(len(found) >= 14 and found[0] == "step", f"help inject lists the phases ({len(found)})")
    for number, phase in enumerate(found):
        ranks = 2 if phase in ("step", "save.piece", "save.rename") else 1  # mpirun takes longer
        options = IN_BACKGROUND if number % 2 else ()
        whole = f"whole{ranks}"
        name = phase.replace(".", "-")
        first = "save.write:5" if phase == "save.write" else "save.piece:7" if phase == "save.piece" else phase
        code, out = injected(name, f"phase={first},step=6,rank={ranks - 1 if phase != 'save.rename' else 0}", *options,
                             ranks=ranks)
        check(code == 137, f"killed at {phase}: {code}")
        check("a fault is injected on purpose" in out, f"{phase}: the fault is announced")
        newest, text = verified(name)
        committed = phase in ("save.latest", "save.prune", "save.remove", "save.end")
        check(newest == (6 if committed else 4), f"killed at {phase}: step {newest} is the newest good one\n{text}")
        told = [int(step) for step in re.findall(r"committed \S*step-(\d+)", out)]
        check(committed or told[-1:] == [4], f"killed at {phase}: no save is told as committed before it is {told}")
        err = run(ranks, name, *SHORT)
        check("the lock of" in err and "is taken over" in err, f"{phase}: the lock is taken over at once")
        check(metrics(name) == metrics(whole), f"killed at {phase}: metrics as of the uninterrupted run")
        check(same_model(name, whole, 8), f"killed at {phase}: the same last checkpoint")
        left = [path.name for path in (WORK / name / "checkpoints").iterdir() if ".tmp." in path.name]
        check(not left and checkpoints(name)[-2:] == checkpoints(whole), f"{phase}: nothing is left behind {left}")


def background():
    out = injected("background", "phase=save.end:99", *IN_BACKGROUND)[1]
    check(metrics("background") == metrics("whole2"), "checkpoint.async changes no number")
    check(checkpoints("background") == checkpoints("whole2"), "checkpoint.async: the same checkpoints")
    for step in (6, 8):
        check(same_model("background", "whole2", step), f"checkpoint.async: step {step} holds the same state")
    steps = [int(step) for step in re.findall(r"committed \S*step-(\d+)", out)]
    check(steps == [2, 4, 6, 8], f"checkpoint.async: each save is reported committed once, in order {steps}")
    check("host" in out, "checkpoint.async: the copy is part of the memory plan")


def failed_saves():
    """The work of each phase fails at step 4; the run goes on and its last checkpoint is the same."""
    for number, phase in enumerate(p for p in phases() if p.startswith("save.") and p != "save.end"):
        name = "failed-" + phase.replace(".", "-")
        options = IN_BACKGROUND if number % 2 else ()
        code, out = injected(name, f"phase={phase},kind=fail,step=4,rank=0", *options, ranks=1)
        check(code == 0, f"{phase} fails: the run ends well ({code})")
        tidying = phase in ("save.latest", "save.prune", "save.remove")
        if phase not in ("save.prune", "save.remove"):  # at step 4 there is nothing to prune yet
            said = "tidying up failed" if tidying else "the checkpoint of step 4 failed, training goes on"
            check(said in out, f"{phase} fails: {said}")
        check(same_model(name, "whole1", 8), f"{phase} fails: the same last checkpoint")
        check(checkpoints(name) == checkpoints("whole1"), f"{phase} fails: {checkpoints(name)}")
        check(verified(name)[0] == 8, f"{phase} fails: it verifies")
        left = [path.name for path in (WORK / name / "checkpoints").iterdir() if ".tmp." in path.name]
        check(not left, f"{phase} fails: nothing is left behind {left}")


def too_many():
    for name, options in (("many", ()), ("many-background", IN_BACKGROUND)):
        code, out = injected(name, "phase=save.write,kind=fail,times=0,rank=1", "checkpoint.max_failed=2", *options)
        check(code == 74 and "2 saves in a row failed" in out, f"{name}: two in a row are the end {code}")
        check("No space left on device" in out, f"{name}: and say why")
        run(2, name, *SHORT, *options)
        check(metrics(name) == metrics("whole2"), f"{name}: the next start goes on")
    code, out = injected("last", "phase=save.write,kind=fail,step=8", ranks=1)
    check(code == 74 and "the last of this run" in out, f"a failed last save: 74 ({code})")
    check(verified("last")[0] == 6, "and the one before it is there")


def two_at_once():
    """A second run in the folder of one that is alive, or in its checkpoints', is refused and does it no harm."""
    job = Job("alive", "run.steps=20000", "checkpoint.every=5", "data.eval_every=0")
    job.wait_for_step(6)
    for options in (("run.dir=work/alive",), ("run.dir=work/other", "checkpoint.dir=work/alive")):
        done = subprocess.run([PROGRAM, "work/deck.yaml", *options], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=100)
        good = done.returncode == 73 and f"process {job.rank(0)} on " in done.stderr
        check(good, f"{options}: 73, naming the run that is alive ({done.returncode}: {done.stderr})")
    os.kill(job.rank(1), signal.SIGUSR1)
    job.end(75)
    check(not (WORK / "alive" / "lock").exists(), "a run that ends gives its lock back")
    newest = int(checkpoints("alive")[-1].removeprefix("step-"))
    check(newest == len(metrics("alive")), "and was not disturbed")


def other_places():
    """Ranks that are started in other folders with other places for temporary files, as on other machines; they stop,
    and go on with their places exchanged."""
    options = [*(option for option in SHORT if not option.startswith("checkpoint.keep")), "checkpoint.keep=1",
               "data.train=[" + os.path.abspath("work/text_text_document") + "]",
               "run.dir=" + os.path.abspath("work/apart")]
    places = [(WORK / f"place{number}").absolute() for number in range(2)]
    for place in places:
        (place / "tmp").mkdir(parents=True)

    def line(order, *more):
        start = ["mpirun", "--oversubscribe", "--bind-to", "none"]
        for rank, place in enumerate(order):
            start += [":"] * rank + ["-np", "1", "-wdir", str(place), "-x", f"TMPDIR={place}/tmp", PROGRAM,
                                     os.path.abspath("work/deck.yaml"), *options, *more]
        return start

    for order, more in ((places, ["run.stop_after=4"]), (places[::-1], [])):
        done = subprocess.run(line(order, *more), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        check(done.returncode == 0, f"ranks in folders of their own {more} {done.stderr}")
    # keep is 1, and what was loaded from stays.
    check(checkpoints("apart") == ["step-00000004", "step-00000008"] and verified("apart")[0] == 8, "keep the two")
    check(metrics("apart") == metrics("whole2"), "and train the same")
    check(same_model("apart", "whole2", 8), "and the same state is in it")
    relative = ["run.dir=apart" if part.startswith("run.dir=") else part for part in line(places)]
    done = subprocess.run(relative, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    check(done.returncode == 73 and "cannot be written" in done.stderr, f"a relative folder is refused {done.stderr}")


def refused():
    done = subprocess.run([PROGRAM, "work/deck.yaml", "run.dir=work/none"], stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, env={**os.environ, "LLMTRAIN_INJECT": "phase=save.opne"})
    check(done.returncode == 64 and "save.opne" in done.stderr, f"a fault that does not exist is 64 {done.stderr}")


prepare()
run(1, "whole1", *SHORT)
run(2, "whole2", *SHORT)
background()
killed_at_every_phase()
failed_saves()
too_many()
two_at_once()
other_places()
refused()
finish()
