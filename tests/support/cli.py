# SPDX-License-Identifier: Apache-2.0
"""What the tests of the program share: a tiny deck with its data, running it under mpirun, reading what a run wrote."""
import json
import os
import subprocess
import sys
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
    """Runs to the end, checks the exit code and returns standard error."""
    result = subprocess.run(command(ranks, name, *overrides), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            timeout=300)
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
