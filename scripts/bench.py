#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times training steps of a deck and prints a record for perf/records (see perf/README.md).

usage: bench.py [--deck DECK] [--ranks N] [--steps K] [--warmup W] [block.key=value ...]
       bench.py --operations [--deck DECK] [--steps K] [--build DIR] [block.key=value ...]

The first form times the program as users run it. The second times one CPU rank's step by operation, on random tokens,
beside what oneDNN takes for the step's matrix products alone (perf/step_profile.cpp).
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN_DIR = "runs/bench"
DEMO = "inputs/demo.yaml"
GPT2 = "perf/gpt2-124m.yaml"


def launch_environment():
    """mpirun's: more ranks than cores, no binding, root allowed where this is root."""
    environment = dict(os.environ, OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none",
                       OMPI_MCA_mpi_yield_when_idle="1")
    if os.geteuid() == 0:
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return environment


def output_of(*command):
    """What a command prints, or "unknown"."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def processor():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def said_by_run(path):
    """What the run's log says of device, model and FLOPs: both conventions, and the peak with its formula."""
    wanted = ("  device ", "  layout ", "  model ")
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.startswith(wanted) or "by 6 N" in line]


def timed_steps(path, warmup):
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line["timing"] for line in lines if line["step"] > warmup and line["timing"]["step_seconds"]]


def print_heading(title, command):
    """What a number needs to be a record: command, program, machine."""
    print(f"# {title}\n")
    print(f"- command: `{' '.join(command)}`")
    version = output_of("./llmtrain", "--version").splitlines()
    print("- program: " + "; ".join(" ".join(line.split()) for line in version))
    cores = len(os.sched_getaffinity(0))
    print(f"- machine: {processor()}, {cores} cores allowed; {platform.system()} {platform.release()}", flush=True)


def print_record(arguments, command, timings):
    def median(key):
        values = [timing[key] for timing in timings if timing.get(key) is not None]
        return statistics.median(values) if values else None

    seconds, rate, mfu = median("step_seconds"), median("tokens_per_second"), median("mfu")
    print_heading(f"{Path(arguments.deck).stem}, {arguments.ranks} ranks", command)
    print(f"- timed: {len(timings)} steps after {arguments.warmup} of warm-up, medians")
    print(f"- step: {seconds:.4f} s; tokens/s: {rate:.0f}" + (f"; MFU: {100 * mfu:.1f} %" if mfu is not None else ""))
    for line in said_by_run(ROOT / RUN_DIR / "log.txt"):
        print(f"- {line}")


def time_operations(arguments):
    """One rank's step by operation: step_profile prints the body of the record."""
    command = [f"{arguments.build}/perf/step_profile", arguments.deck, f"run.steps={arguments.steps}",
               *arguments.overrides]
    print_heading(" ".join([Path(arguments.deck).stem, "by operation", *arguments.overrides]), command)
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode


def time_program(arguments):
    """The program under mpirun; its metrics.jsonl holds the times."""
    if arguments.deck == DEMO:
        subprocess.run(["scripts/make_demo_data.sh"], cwd=ROOT, check=True)
    command = ["mpirun", "-np", str(arguments.ranks), "./llmtrain", arguments.deck, f"run.steps={arguments.steps}",
               f"run.dir={RUN_DIR}", "run.overwrite=true", "checkpoint.every=0", "checkpoint.resume=never",
               "data.eval_every=0", *arguments.overrides]
    code = subprocess.run(command, cwd=ROOT, env=launch_environment(), stdin=subprocess.DEVNULL).returncode
    if code != 0:
        print(f"bench: {' '.join(command)} ended with {code}", file=sys.stderr)
        return code
    timings = timed_steps(ROOT / RUN_DIR / "metrics.jsonl", arguments.warmup)
    if not timings:
        print(f"bench: {RUN_DIR}/metrics.jsonl has no step after {arguments.warmup}; use more --steps", file=sys.stderr)
        return 1
    print()
    print_record(arguments, command, timings)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", action="store_true", help="one CPU rank's step by operation")
    parser.add_argument("--build", default="build", help="folder of the build that has perf/step_profile")
    parser.add_argument("--deck", help=f"default {DEMO}, with --operations {GPT2}")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, help="default 40 in all, with --operations 20 after warm-up")
    parser.add_argument("--warmup", type=int, default=10, help="steps left out at the start")
    parser.add_argument("overrides", nargs="*", help="block.key=value")
    arguments = parser.parse_args()
    arguments.deck = arguments.deck or (GPT2 if arguments.operations else DEMO)
    arguments.steps = arguments.steps or (20 if arguments.operations else 40)
    return time_operations(arguments) if arguments.operations else time_program(arguments)


if __name__ == "__main__":
    sys.exit(main())
