#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# Resuming where the order of the samples turns: at the end of an epoch and where the samples begin again; runs of no
# steps, and finished runs that are made longer.
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, check, checkpoints, files, finish, metrics, prepare, run, training_only  # noqa: E402

# 41 documents of 31 bytes and their end: 1,312 tokens, which are 40 samples of 32 + 1 tokens, 5 steps of 8.
EVEN = ("data.train=[work/even_text_document]", "data.split='1,0,0'")


def even_data():
    lines = (json.dumps({"text": f"document {i:03} of the even data set"[:31].ljust(31)}) for i in range(41))
    Path("work/even.jsonl").write_text("\n".join(lines) + "\n")
    subprocess.run([PROGRAM, "preprocess", "--input", "work/even.jsonl", "--output-prefix", "work/even", "--tokenizer",
                    "bytes", "--append-eod"], check=True, stdin=subprocess.DEVNULL, capture_output=True)
    check(Path("work/even_text_document.bin").stat().st_size == 2 * 41 * 32, "an epoch ends with a step")


def turns():
    """The last of several epochs is shuffled by itself after step 5; 40 samples begin again after steps 5 and 10. The
    learning rate is in its plateau after step 5 and in its decay after step 10."""
    for name, end, stops, options in (("epoch", 8, (5,), ()), ("again", 12, (5, 10), ("data.samples=40",))):
        options = (*EVEN, f"run.steps={end}", "optimizer.schedule=wsd", "optimizer.final_decay_steps=3", *options)
        text = run(2, name, *options)
        check(("used again in the same order" in text) == (name == "again"), f"{name}: says so if samples come again")
        rates = [line["lr"] for line in metrics(name)]
        check(rates[3] == rates[end - 4] > rates[end - 3] > rates[end - 1] == 3e-4, f"{name}: the rates stay and fall")
        for stop in stops:
            part = f"{name}{stop}"
            run(2, part, *options, f"run.stop_after={stop}")
            check(len(metrics(part)) == stop, f"{part}: stopped after step {stop}")
            run(2, part, *options)
            check(metrics(part) == metrics(name), f"{part}: metrics as of the uninterrupted run")
            check(files(part, end) == files(name, end), f"{part}: checkpoint files as of the uninterrupted run")


def no_steps():
    run(2, "none", "run.steps=0")
    check(checkpoints("none") == ["step-00000000"] and metrics("none") == [], "no steps: the initial state is saved")
    run(2, "whole")
    run(2, "none")
    check(metrics("none") == metrics("whole"), "a run that goes on from the initial state is the whole run")
    run(2, "negative", "run.steps=-1", code=78)


def finished():
    before = files("whole", 20)
    run(2, "whole", "run.steps=15")
    check(files("whole", 20) == before and len(metrics("whole")) == 20, "a shorter horizon undoes nothing")
    run(2, "whole", "run.steps=24")
    check(len(metrics("whole")) == 24 and checkpoints("whole")[-1] == "step-00000024", "a longer one goes on")
    check(training_only("whole")[:20] == training_only("none"), "and leaves the lines before as they were")


def changed_data():
    """Other documents under the same name are another run, unless the deck says that they are meant."""
    options = (*EVEN, "run.steps=8")
    run(1, "changed", *options, "run.stop_after=4")
    before = {path: path.read_bytes() for path in Path("work").glob("even_text_document.*")}
    with open("work/even.jsonl", "a") as lines:
        lines.write(json.dumps({"text": "one more document"}) + "\n")
    subprocess.run([PROGRAM, "preprocess", "--input", "work/even.jsonl", "--output-prefix", "work/even", "--tokenizer",
                    "bytes", "--append-eod"], check=True, stdin=subprocess.DEVNULL, capture_output=True)
    text = run(1, "changed", *options, code=84)
    named = "other contents of data.train" in text and "checkpoint.allow: [data.train]" in text
    check(named, f"changed data is refused {text}")
    text = run(1, "changed", *options, "checkpoint.allow=[data]")
    check("data.train has other contents than in the checkpoint" in text, "changed data that is allowed is told")
    for path, content in before.items():
        path.write_bytes(content)


def changed_tokenizer():
    """Two merges that change places are another tokenizer under the same name: the data says so, or the checkpoint."""
    preprocess = [PROGRAM, "preprocess", "--input", "work/text.jsonl", "--output-prefix", "work/bpe", "--eod", "<e>"]
    file = Path("work/bpe_tokenizer.json")
    for more in (["--train-tokenizer", "280"], ["--tokenizer", str(file), "--append-eod"]):
        subprocess.run([*preprocess, *more], check=True, stdin=subprocess.DEVNULL, capture_output=True)
    options = ("data.train=[work/bpe_text_document]", f"data.tokenizer={file}", "run.steps=8", "data.eval_every=0")
    run(1, "merges", *options, "run.stop_after=4")
    model = json.loads(file.read_text())
    merges = model["model"]["merges"]
    merges[0], merges[1] = merges[1], merges[0]
    file.write_text(json.dumps(model))
    check("work/bpe_text_document" in run(1, "merges", *options, code=78), "data of another tokenizer is refused")
    Path("work/bpe_text_document.json").unlink()  # what preprocess noted
    text = run(1, "merges", *options, code=84)
    named = "other contents of data.tokenizer" in text and "checkpoint.allow: [data.tokenizer]" in text
    check(named, f"a checkpoint of another tokenizer is refused {text}")
    text = run(1, "merges", *options, "checkpoint.allow=[data.tokenizer]")
    check("data.tokenizer has other contents than in the checkpoint" in text, "another tokenizer may be allowed")


def other_keys():
    """What may differ is told; what may not is refused with a table of it."""
    run(1, "keys", "run.steps=8", "run.stop_after=4")
    text = run(1, "keys", "run.steps=8", "model.norm_eps=1e-4", "optimizer.eps=1e-7", "optimizer.lr=1e-3", code=84)
    table = [line.split() for line in text.splitlines() if " stored " in line]
    check([row[0] for row in table] == ["model.norm_eps", "optimizer.eps"], f"84 with a table of what differs {table}")
    text = run(1, "keys", "run.steps=8", "optimizer.lr=1e-3", "optimizer.eps=1e-7", "checkpoint.allow=[optimizer.eps]")
    for key in ("optimizer.lr", "optimizer.eps"):
        check(f"{key} was " in text, f"the change of {key} is told")


prepare()
even_data()
turns()
no_steps()
finished()
changed_data()
changed_tokenizer()
other_keys()
finish()
