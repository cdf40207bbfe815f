#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# A disk that is full at any write of `llmtrain checkpoint export`, `import`, `consolidate`, `prune` or `index`: the
# program says so, what was there stays as it was, and nothing half-written is left.
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, WORK, check, finish, prepare, run  # noqa: E402

CALLS = ("write", "pwrite64", "ftruncate", "fsync", "rename", "mkdir")
PLACE = WORK / "place"  # where everything is written to


def contents():
    """All files below PLACE, which the program may not leave other than before."""
    return {str(path.relative_to(PLACE)): path.read_bytes() for path in PLACE.rglob("*") if path.is_file()}


def failing(arguments):
    """Runs the program again and again, each time with the next of its calls failing for want of space, and once to the
    end for each kind of call. Gives the call, the exit code and standard error."""
    trace = WORK / "trace"
    for call in CALLS:
        for number in range(1, 1000):
            done = subprocess.run(["strace", "-f", "-o", trace, "-e", "trace=" + call, "-e",
                                   f"inject={call}:error=ENOSPC:when={number}", PROGRAM, "checkpoint", *arguments],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"})
            yield f"{call} {number}", done.returncode, done.stderr
            if "(INJECTED)" not in trace.read_text():
                break


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def every_call(what, target, *arguments, least):
    """Nothing but `target`, whole, is ever left in PLACE."""
    arguments = [str(argument) for argument in arguments]
    before, failed, wrong = contents(), 0, []
    for call, code, said in failing(arguments):
        if target.exists():  # nothing failed, or the report, or what follows the commit
            remove(target)
            remove(target.parent / "latest")
        elif code in (73, 74) and "No space left" in said and said.count("\n") == 1:
            failed += 1
        else:
            wrong.append(f"{call}: 73 or 74 and why ({code}) {said}")
        if contents() != before:
            wrong.append(f"{call}: leaves {sorted(contents().keys() ^ before.keys())}")
            break
    check(not wrong and failed >= least, f"{what}: {failed} calls failed, and nothing was left {wrong}")
    code = subprocess.run([PROGRAM, "checkpoint", *arguments], stdin=subprocess.DEVNULL, capture_output=True).returncode
    check(code == 0 and target.exists(), f"{what}: works where the disk is not full ({code})")


def prune(saves):
    """Of three steps one is to stay: the newest is good whatever fails, and none is half there under its own name."""
    failed, wrong = 0, []
    for call, code, said in failing(["prune", str(saves), "--keep", "1"]):
        failed += 1 if code else 0
        good = subprocess.run([PROGRAM, "checkpoint", "verify", saves], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True).stdout
        names = sorted(path.name for path in saves.glob("step-????????"))
        if sorted(re.findall(r"(step-\d+): good", good)) != names or "step-00000006" not in names:
            wrong.append(f"{call}: {names} {good} {said}")
        shutil.rmtree(saves)
        shutil.copytree("work/run/checkpoints", saves)
    check(not wrong and failed >= 4, f"prune: {failed} calls failed, the newest step stays {wrong}")


def main():
    prepare()
    run(1, "run", "run.steps=6", "data.eval_every=0", "checkpoint.every=2", "checkpoint.keep=3", "model.layers=1")
    PLACE.mkdir()
    saves = PLACE / "checkpoints"
    shutil.copytree("work/run/checkpoints", saves)
    every_call("export", PLACE / "model", "export", saves, PLACE / "model", "--shard-gb", "4e-5", least=20)
    step = PLACE / "imported" / "step-00000000"
    every_call("import", step, "import", PLACE / "model", PLACE / "imported", least=20)
    one = PLACE / "one.safetensors"
    every_call("consolidate", one, "consolidate", saves, one, least=5)
    index = saves / "step-00000006" / "checkpoint.h5"
    index.unlink()
    every_call("index", index, "index", saves, least=5)
    shutil.rmtree(saves)
    shutil.copytree("work/run/checkpoints", saves)
    prune(saves)


if shutil.which("strace") is None:
    print("strace is not installed: not tried")
    sys.exit(77)
main()
finish()
