#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# llmtrain plan: the decks for real clusters, what does not fit or divide, JSON, search, and hardware files.
import json
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, check, finish  # noqa: E402

INPUTS = Path(__file__).resolve().parent.parent.parent / "inputs"
CLUSTERS = {"llama2-13b-8-h100": 8, "codellama-34b-16-h100": 16, "llama3-8b-8-h100": 8, "llama3-70b-64-h100": 64,
            "llama3-405b-1024-h100": 1024}
SMALL = """
run: {device: cpu}
model: {layers: 4, hidden: 64, heads: 4, kv_heads: 4, ffn: 128, seq_len: 64}
schedule: {micro_batch: 1, global_batch: 16}
"""


def plan(*arguments, code=0):
    done = subprocess.run([PROGRAM, "plan", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    check(done.returncode == code, f"plan {' '.join(arguments)[-80:]}: exit code {code} ({done.returncode})")
    if done.returncode != code:
        print(done.stdout[-2000:] + done.stderr[-2000:])
    return done.stdout, done.stderr


def clusters():
    for name, ranks in CLUSTERS.items():
        text = plan(str(INPUTS / f"{name}.yaml"), "--ranks", str(ranks), "--json")[0]
        found = json.loads(text)
        check(found["schema"] == 1 and found["fits"], f"{name} fits")
        check(found["constants"]["peak.bf16"] > 0, f"{name} says what it assumes")
        check(sum(c["ranks"] for c in found["classes"]) == ranks, f"{name}: classes hold all ranks")
        for c in found["classes"]:
            m = c["memory"]
            segments = ("params", "master", "moments", "grads", "activations", "comm", "scratch")
            check(m["peak"] == sum(m[s] for s in segments), f"{name}, {c['name']}: the peak is the sum of its segments")
        step = found["step"]
        exposed = dict(step["exposed"])
        total = exposed.pop("total")
        check(abs(total - sum(exposed.values())) < 1e-9 and exposed["pipeline"] >= step["bubble"] * step["seconds"] and
              total - step["bubble"] * step["seconds"] <= step["waiting"] + 1e-9,
              f"{name}: exposed communication is the bubble and a part of the waiting")
        # The decks say what was predicted when they were written; they and the model move together.
        head = (INPUTS / f"{name}.yaml").read_text().split("\n\n")[0]
        written = float(re.search(r"([\d,]+)\s+(?:#\s+)?tokens/s a GPU", head).group(1).replace(",", ""))
        rate = step["tokens_per_second_per_rank"]
        near = abs(written / rate - 1) < 0.05
        check(near, f"{name}: the deck says {written:.0f} tokens/s a GPU, the plan {rate:.0f}")


def small_decks():
    deck = Path("small.yaml")
    deck.write_text(SMALL)
    text = plan(str(deck), "--ranks", "4", "parallel.tensor=2", "parallel.pipeline=2")[0]
    for word in ("memory of a rank", "communication of a step", "reduce_scatter", "stage 0  F0", "bubble", "proved"):
        check(word in text, f"the text tells of '{word}'")
    other = json.loads(plan(str(deck), "--nodes", "2", "--gpus-per-node", "2", "--json", "run.device=auto")[0])
    cut = other["layout"]["ranks"] == 4 and other["collectives"][0]["nodes"] == 2
    check(cut, "nodes give the ranks, and cut groups")
    _, error = plan(str(deck), "--ranks", "6", "parallel.tensor=4", code=78)
    told = "6 ranks are not divisible" in error and "choose a product of" in error
    check(told, "what does not divide, and what would")
    plan(str(deck), code=64)
    plan(str(deck), "--ranks", "2", "--gpu", "h100", code=64)
    plan(str(deck), "--ranks", "2", "--gpu", "h200", code=78)  # the deck asks for a CPU
    plan("absent.yaml", "--ranks", "2", code=66)


def too_large():
    deck = str(INPUTS / "llama3-70b-64-h100.yaml")
    text, error = plan(deck, "--ranks", "16", "--json", "parallel.zero=0", code=78)
    found = json.loads(text)
    check(not found["fits"] and found["step"]["seconds"] > 0, "what does not fit is printed all the same")
    check("are too small" in error and "parallel.zero=" in error, "and a change that makes it fit is named")
    error = plan(deck, "--ranks", "16", "parallel.tensor=4", "parallel.pipeline=1", code=78)[1]
    check("more ranks are needed" in error or "changes that make it fit" in error, "or that there is none")


def search():
    text = plan(str(INPUTS / "llama3-8b-8-h100.yaml"), "--ranks", "8", "--search", "--top", "3", "--take", "2", "--to",
                "taken")[0]
    rows = [line.split() for line in text.splitlines() if line.strip()[:2] in ("1 ", "2 ", "3 ")]
    check(len(rows) == 3 and "why the first one" in text, "a ranked table with reasons")
    times = [float(row[11 if row[10].endswith("iB") else 12]) for row in rows]
    check(times == sorted(times), f"the fastest first: {times}")
    job = Path("taken/job.sh").read_text()
    asked = "--ntasks=8" in job and "--ntasks-per-node=8" in job
    check(asked and "taken/deck.yaml" in job, "a job script for the second")
    found = json.loads(plan("taken/deck.yaml", "--ranks", "8", "--json")[0])
    check(found["fits"] and abs(found["step"]["seconds"] / times[1] - 1) < 1e-3, "whose deck plans to the same time")


def balanced_layers():
    """Of pipelines the search also deals layers by time: the head of an 8B model takes as long as two layers."""
    two = ("--ranks", "2", "--gpu", "h200")
    deck = str(INPUTS / "llama3-8b-8-h100.yaml")
    text = plan(deck, *two, "--search", "--top", "100")[0]
    row = re.compile(r"^ +(\d+) +(1 +2 +\d+) +(even|balanced) +1 +0 +all +(1 none) +[\d.]+ GiB +([\d.]+)", re.M)
    rows = row.findall(text)
    times = {(axes, layers): float(seconds) for _, axes, layers, _, seconds in rows}
    evens = [axes for axes, layers in times if layers == "even" and (axes, "balanced") in times]
    gains = [times[axes, "even"] / times[axes, "balanced"] for axes in evens]
    check(len(gains) > 2 and min(gains) > 1.02, f"{len(gains)} pipelines of two are faster by it: {gains}")
    number = next(number for number, _, layers, *_ in rows if layers == "balanced")
    plan(deck, *two, "--search", "--take", number, "--to", "two")
    found = json.loads(plan("two/deck.yaml", *two, "--json")[0])
    seconds = next(float(row[-1]) for row in rows if row[0] == number)
    check(abs(found["step"]["seconds"] / seconds - 1) < 1e-3, "and the deck that is written plans to the same time")
    keys = ("parallel.pipeline=2", "parallel.zero=0", "schedule.global_batch=8", "schedule.micro_batch=1")
    line = re.search(r"^faster: (parallel.stage_layers=\S+) takes ([\d.]+) s \(-[\d.]+ %\): the head takes as long as "
                     r"[12][.]\d layers$", plan(deck, *two, *keys)[0], re.M)
    check(line, "a plan names the faster split")
    found = json.loads(plan(deck, *two, *keys, line.group(1), "--json")[0])
    check(abs(found["step"]["seconds"] / float(line.group(2)) - 1) < 1e-3, "which takes as long as it says")
    check("faster:" not in plan(deck, *two, *keys, line.group(1))[0], "and has no other")


def whole_weights():
    """Under ZeRO-3 the search also fills the memory with weights that stay whole, and recomputes where that makes room
    for more: more memory, less time. What the deck says of either is no limit."""
    axes = r"(\d+ +\d+ +\d+ +even +\d+) +3"
    row = re.compile(rf"^ +\d+ +{axes} +([\d.]+) ([kM]) +(\d+) (\w+) +([\d.]+) GiB +([\d.]+)", re.M)
    rows = {}
    for persistence in ("1e5", "1e9"):
        text = plan(str(INPUTS / "llama2-13b-8-h100.yaml"), "--ranks", "8", "--search", "--top", "2000",
                    f"parallel.persistence={persistence}")[0]
        rows[persistence] = row.findall(text)
    check(rows["1e5"] == rows["1e9"], "the same layouts whatever the deck keeps whole")
    found = {}
    for layout, whole, unit, step, recompute, memory, seconds in rows["1e5"]:
        size = float(whole) * {"k": 1e3, "M": 1e6}[unit]
        found.setdefault((layout, step), []).append((size, recompute, float(memory), float(seconds)))
    least = [min(rows) for rows in found.values()]
    check(all(size == 1e5 for size, *_ in least), f"all {len(found)} layouts with ZeRO-3 as they need least memory")
    more = [row for (size, recompute, memory, seconds), rows in zip(least, found.values()) for row in rows
            if row[1] == recompute and row[0] > size and row[2] > memory and row[3] <= seconds]
    check(len(more) > 5, f"{len(more)} with more weights whole, in more memory and less time")
    again = [row for first, rows in zip(least, found.values()) for row in rows if row[1] != first[1]]
    check(len(again) > 0, f"{len(again)} with more recompute for that")


def hardware_files():
    path = Path("hardware.yaml")
    path.write_text("gpu: false\ngemm: {fp32: 1e11}\nbandwidth: 2e10\ngem: {fp32: 1}\n")
    error = plan("small.yaml", "--ranks", "1", "--hardware", str(path), "precision.compute=fp32", code=78)[1]
    check("unknown key 'gem'" in error, "a misspelt key of a hardware file is named")
    links = "inside: {bandwidth: 1e9}\nacross: {bandwidth: 1e9}\n"
    attention = "attention_forward: {fp32: 1e10}\nattention_backward: {fp32: 1e10}\n"
    path.write_text("gpu: false\ngemm: {fp32: 1e11}\nbandwidth: 2e10\n" + attention + links)
    options = ("--ranks", "1", "--hardware", str(path), "--json", "precision.compute=fp32")
    slow = json.loads(plan("small.yaml", *options)[0])
    path.write_text("gpu: false\ngemm: {fp32: 1e12}\nbandwidth: 2e11\n" + attention.replace("1e10", "1e11") + links)
    fast = json.loads(plan("small.yaml", *options)[0])
    ratio = slow["step"]["seconds"] / fast["step"]["seconds"]
    check(abs(ratio - 10) < 1e-3, f"ten times the rates, a tenth of the time ({ratio})")
    path.write_text("base: h100-80g\nname: ours\nacross: {bandwidth: 5e9}\n")
    options = ("--ranks", "16", "--json", "run.device=auto")
    ours = json.loads(plan("small.yaml", *options, "--hardware", str(path))[0])
    theirs = json.loads(plan("small.yaml", *options)[0])
    check(ours["layout"]["hardware"] == "ours" and ours["classes"] == theirs["classes"], "a file on a built-in base")
    check(ours["step"]["seconds"] > theirs["step"]["seconds"], "with a slower network")
    path.write_text("base: h100\n")
    error = plan("small.yaml", *options, "--hardware", str(path), code=78)[1]
    check("hardware.yaml:1:7: base: no hardware is called 'h100'" in error and "h100-80g" in error, "a wrong base")


clusters()
small_decks()
too_large()
search()
balanced_layers()
whole_weights()
hardware_files()
finish()
