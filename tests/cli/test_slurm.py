#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# The job scripts of jobs/ on a Slurm that this test starts and stops: accepted as they are; run on one and two nodes;
# warned by the time limit they save, go back into the queue and end as the uninterrupted run, under srun and mpirun; so
# they do after a hang, where a restart is left for it.
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import DECK, PROGRAM, WORK, check, files, finish, metrics, prepare, run  # noqa: E402
from slurm import CPUS, Slurm, missing  # noqa: E402

JOBS = Path(__file__).resolve().parents[2] / "jobs"
ONE_NODE, MANY_NODES = str(JOBS / "slurm-one-node.sh"), str(JOBS / "slurm-8-nodes.sh")
TINY = ("--cpus-per-task=1", "--output=work/%j.log")
# So many steps that no run comes to its end by itself; most of the time goes into evaluations.
ENDLESS = ("run.steps=20000", "data.eval_every=2", "data.eval_batches=20", "checkpoint.every=50")
ENDS = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")
LAUNCHERS = ("srun", "mpirun")
SKIPPED = 77


def log(number):
    return (WORK / f"{number}.log").read_text()


def end_of(slurm, number, state, code=0):
    """Waits for a job's end and checks how it ended; returns its log."""
    slurm.wait(lambda: slurm.job(number)["JobState"] in ENDS, 200, f"end of job {number}")
    job = slurm.job(number)
    good = job["JobState"] == state and job["ExitCode"] == f"{code}:0"
    check(good, f"job {number}: {state} with exit code {code} ({job['JobState']} {job['ExitCode']})")
    if not good:
        print(log(number)[-2000:])
    return log(number)


def accepted_as_they_are(slurm):
    for script, nodes in ((ONE_NODE, 1), (MANY_NODES, 8)):
        answer = slurm.run("sbatch", "--test-only", script, "work/deck.yaml")
        wanted = f"using {nodes * CPUS} processors"
        check(wanted in answer, f"{Path(script).name}: Slurm would start it {wanted} ({answer.strip()})")


def two_nodes(slurm):
    jobs = {launcher: slurm.submit(*TINY, "--nodes=2", "--ntasks-per-node=1", MANY_NODES, "work/deck.yaml",
                                   f"run.dir=work/nodes-{launcher}", "run.stop_after=6", LAUNCHER=launcher)
            for launcher in LAUNCHERS}
    run(2, "plain", "run.stop_after=6")
    for launcher, number in jobs.items():
        end_of(slurm, number, "COMPLETED")
        name = f"nodes-{launcher}"
        check(metrics(name) == metrics("plain") and files(name, 6) == files("plain", 6),
              f"{launcher}: a rank on each of two nodes: metrics and checkpoint as of two ranks by mpirun alone")


def failures(slurm):
    wrong = slurm.submit(*TINY, "--ntasks-per-node=2", ONE_NODE, "work/deck.yaml", "model.layers=none")
    unknown = slurm.submit(*TINY, "--ntasks-per-node=1", ONE_NODE, "work/deck.yaml", LAUNCHER="torchrun")
    check("model.layers" in end_of(slurm, wrong, "FAILED", 78), "a wrong deck is told, the job ends with 78")
    check(slurm.job(wrong)["Restarts"] == "0", "and is not requeued")
    check("LAUNCHER is 'torchrun'" in end_of(slurm, unknown, "FAILED", 64), "an unknown launcher is told")


def steps(name):
    return len(metrics(name)) if (WORK / name / "metrics.jsonl").exists() else 0


def requeued(slurm):
    """Slurm looks at time limits every 30 s, and then warns the jobs whose limit is less than 30 s + 100 s ahead."""
    jobs = {launcher: slurm.submit(*TINY, "--ntasks-per-node=2", "--time=10", "--signal=B:USR1@100", ONE_NODE,
                                   "work/deck.yaml", f"run.dir=work/{launcher}", *ENDLESS, LAUNCHER=launcher)
            for launcher in LAUNCHERS}
    for launcher, number in jobs.items():
        slurm.wait(lambda: steps(launcher) >= 4, 90, f"steps of {launcher}'s job {number}")
    for number in jobs.values():
        slurm.run("scontrol", "update", f"JobId={number}", "TimeLimit=2")
    for launcher, number in jobs.items():
        slurm.wait(lambda: int(slurm.job(number)["Restarts"]) > 0, 150, f"requeue of {launcher}'s job {number}")
    for number in jobs.values():
        slurm.run("scontrol", "update", f"JobId={number}", "TimeLimit=10")
    # An end, which the jobs read when they start again.
    end = max(steps(launcher) for launcher in jobs) + 3
    (WORK / "deck.yaml").write_text(DECK.replace("run: {", f"run: {{stop_after: {end}, "))
    run(2, "whole", *ENDLESS)
    for launcher, number in jobs.items():
        text = end_of(slurm, number, "COMPLETED")
        check(": SIGUSR1\n" in text and "goes back into the queue" in text and "\nresumed from work/" in text,
              f"{launcher}: warned, saved, requeued and resumed ({slurm.job(number)['Restarts']} times)")
        check(metrics(launcher) == metrics("whole"), f"{launcher}: metrics as of the uninterrupted run of {end} steps")
        check(files(launcher, end) == files("whole", end), f"{launcher}: checkpoint files as of the uninterrupted run")


def hung(slurm):
    """A rank hangs at its fifth step: in the second start, which has four to make, none does."""
    keys = ("run.steps=8", "checkpoint.every=2", "data.eval_every=0", "run.hang_timeout=3")
    run(2, "steady", *keys)
    jobs = {launcher: slurm.submit(*TINY, "--ntasks-per-node=2", ONE_NODE, "work/deck.yaml", *keys,
                                   f"run.dir=work/hung-{launcher}", LAUNCHER=launcher, RESTARTS="1",
                                   LLMTRAIN_INJECT="phase=step:5,kind=hang,rank=1")
            for launcher in LAUNCHERS}
    last = slurm.submit(*TINY, "--ntasks-per-node=2", ONE_NODE, "work/deck.yaml", *keys, "run.dir=work/last",
                        LAUNCHER="mpirun", LLMTRAIN_INJECT="phase=step:5,kind=sigstop,rank=1")
    for launcher, number in jobs.items():
        text = end_of(slurm, number, "COMPLETED")
        told = "no rank has got on for 3 s" in text and "and it may be restarted" in text
        check(told and slurm.job(number)["Restarts"] == "1", f"{launcher}: the hang is told and the job restarted")
        check(metrics(f"hung-{launcher}") == metrics("steady"), f"{launcher}: metrics as of the run that never hung")
    end_of(slurm, last, "FAILED", 81)
    check(slurm.job(last)["Restarts"] == "0", "without RESTARTS a hang ends the job")


def slurm_jobs():
    prepare()
    home = WORK.resolve() / "home"  # as the top of the repository is, with the program that is tested
    home.mkdir()
    (home / "llmtrain").symlink_to(PROGRAM)
    (home / "jobs").symlink_to(JOBS)
    slurm = Slurm(nodes=8)
    with slurm:
        slurm.environment["LLMTRAIN_HOME"] = str(home)
        accepted_as_they_are(slurm)
        failures(slurm)
        two_nodes(slurm)
        hung(slurm)
        requeued(slurm)
    check(not slurm.processes() and not slurm.folder.exists(), "nothing of this Slurm is left")


if missing():
    print(f"skipped: no Slurm here: {', '.join(missing())} not found (packages slurm-wlm and munge)")
    sys.exit(SKIPPED)
slurm_jobs()
finish()
