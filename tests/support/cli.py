# SPDX-License-Identifier: Apache-2.0
"""What the tests of the program share: a tiny deck with its data, running it under mpirun, reading what a run wrote."""
import json
import os
import signal
import subprocess
import sys
import time
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
_failures = []
for _name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):  # as ctest sets them
    os.environ.setdefault(_name, "1")


def check(condition, what):
    print(("ok    " if condition else "FAIL  ") + what, flush=True)
    if not condition:
        _failures.append(what)


def finish():
    print(f"{len(_failures)} failed")
    sys.exit(1 if _failures else 0)


def prepare(deck=DECK):
    """Empties work/ and makes work/deck.yaml and the dataset work/text_text_document in it."""
    WORK.mkdir(exist_ok=True)
    subprocess.run(["rm", "-rf"] + [str(p) for p in WORK.iterdir()], check=True)
    (WORK / "deck.yaml").write_text(deck)
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


def command(ranks, name, *overrides):
    """The command line that runs work/deck.yaml in work/NAME on so many ranks."""
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), PROGRAM, "work/deck.yaml",
            f"run.dir=work/{name}", *overrides]


def run(ranks, name, *overrides, code=0):
    """Runs to the end, which may take long on a busy machine; checks the exit code and returns standard error."""
    result = subprocess.run(command(ranks, name, *overrides), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            timeout=1200)
    if result.returncode != code:
        print(result.stdout[-2000:] + result.stderr[-2000:])
    check(result.returncode == code, f"{name}: exit code {code} ({result.returncode})")
    return result.stderr


def metrics(name):
    """Lines of metrics.jsonl without what depends on the clock."""
    lines = [json.loads(line) for line in (WORK / name / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["timing"]
    return lines


def files(name, step):
    """Contents of a step folder by file name."""
    folder = WORK / name / "checkpoints" / f"step-{step:08d}"
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def training_only(name):
    """The metrics of a run without what its evaluations add."""
    return [{key: value for key, value in line.items() if not key.startswith("valid")} for line in metrics(name)]


def checkpoints(name):
    """Names of a run's step folders, in order."""
    return sorted(path.name for path in (WORK / name / "checkpoints").glob("step-????????"))


class Job:
    """A run of two ranks in the background."""

    def __init__(self, name, *options, prefix=()):
        self.name = name
        self.process = subprocess.Popen([*prefix, *command(2, name, *options)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        start_new_session=True)

    def wait_for(self, condition, what):
        """Waits until the condition gives something true, and returns that."""
        end = time.monotonic() + 200
        while not (found := condition()):
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{self.name}: no {what}: {self.process.communicate()}")
            time.sleep(0.002)
        return found

    def find(self, number):
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

    def rank(self, number):
        """Process id of a rank, once it catches signals."""
        return self.wait_for(lambda: self.find(number), f"rank {number}")

    def steps(self):
        """Steps that metrics.jsonl holds."""
        path = WORK / self.name / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def wait_for_step(self, number):
        self.wait_for(lambda: self.steps() >= number, f"step {number}")

    def end(self, code):
        """Waits for the end, checks the exit code and returns standard output and standard error."""
        try:
            out, err = self.process.communicate(timeout=200)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        got = self.process.returncode
        if got != code:
            print(out[-2000:] + err[-2000:])
        check(got == code, f"{self.name}: exit code {code} ({got})")
        return out, err
