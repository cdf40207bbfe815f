#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicted weak and strong scaling from 8 to 16,384 GPUs: tables in README.md and one SVG a study, beside this script.

usage: perf/scaling/make.py [PROGRAM]     (default ./llmtrain; seconds on one core)
Every number is `llmtrain plan --json`: nothing was run. Assumptions are the constants of --gpu h100-80g.
"""
import json
import math
import subprocess
import sys
from pathlib import Path

PLACE = Path(__file__).resolve().parent
INPUTS = PLACE.parent.parent / "inputs"
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else "./llmtrain"

# name, deck, meaning, GPUs, keys by the number of GPUs
STUDIES = [
    ("weak-8b", "llama3-8b-8-h100",
     "Llama-3 8B, weak: 128 sequences of 8192 a node; ZeRO-2 over a node, replicas between",
     [8 * 2**i for i in range(12)],
     lambda n: {"schedule.global_batch": 16 * n, "parallel.shard": 8}),
    ("weak-70b", "llama3-70b-64-h100",
     "Llama-3 70B, weak: tensor 8, pipeline 2, 64 sequences of 8192 a replica of 16 GPUs; up to 32 GPUs ZeRO-3 and "
     "recompute of blocks",
     [16 * 2**i for i in range(11)],
     lambda n: {"schedule.global_batch": 4 * n, "parallel.zero": 1 if n > 32 else 3,
                "schedule.recompute": "selective" if n > 32 else "block"}),
    ("strong-70b", "llama3-70b-64-h100", "Llama-3 70B, strong: 2048 sequences of 8192 a step, tensor 8, pipeline 2",
     [64 * 2**i for i in range(9)],
     lambda n: {"schedule.global_batch": 2048}),
    ("strong-405b", "llama3-405b-1024-h100",
     "Llama-3.1 405B, strong: 2048 sequences of 8192 a step, tensor 8, pipeline 16; with 512 GPUs recompute of blocks",
     [512 * 2**i for i in range(6)],
     lambda n: {"schedule.global_batch": 2048, "schedule.recompute": "selective" if n > 512 else "block"}),
]


HEAD = """# Predicted scaling

Made by `perf/scaling/make.py` from `llmtrain plan --json` with `--gpu h100-80g`. **Nothing here was run.** Assumed:
{ranks} H100 SXM a node; the kernel rates measured on one H200 with the H100's memory bandwidth; {inside:.0f} GB/s a
GPU within a node, {across:.0f} GB/s a GPU between nodes at any distance (a network without contention);
{latency:.0f} us latency for each doubling of a group; computation feels {felt:.0f} % of the time of collectives
beside it, {felt_copies:.0f} % of that of copies within a node ({copies:.0f} GB/s a GPU); no stragglers, no input or
checkpoint stalls. MFU (A): 6 N + 6 L d s FLOP a token of {peak:.1f} TFLOP/s. "collectives": share of the step spent
waiting for them or slowed by them.
"""


def head(found):
    """The assumptions of a plan."""
    c = found["constants"]
    return HEAD.format(ranks=found["layout"]["ranks_a_node"], inside=c["inside.bandwidth"] / 1e9,
                       across=c["across.bandwidth"] / 1e9, latency=c["across.latency"] * 1e6,
                       felt=100 * (1 - c["overlap"]), felt_copies=100 * (1 - c["copies.overlap"]),
                       copies=c["copies.bandwidth"] / 1e9, peak=c["peak.bf16"] / 1e12)


def plan(deck, ranks, keys):
    """The plan of a deck on so many GPUs; None where the deck's rules do not allow it."""
    command = [PROGRAM, "plan", str(INPUTS / f"{deck}.yaml"), "--ranks", str(ranks), "--gpu", "h100-80g", "--json"]
    done = subprocess.run(command + [f"{k}={v}" for k, v in keys.items()], capture_output=True, text=True)
    return json.loads(done.stdout) if done.stdout else None


def rows_of(study):
    _, deck, _, sizes, keys = study
    rows = []
    for ranks in sizes:
        found = plan(deck, ranks, keys(ranks))
        if found is None:
            continue
        step = found["step"]
        peak = max(c["memory"]["peak"] for c in found["classes"])
        rows.append({"gpus": ranks, "data": found["layout"]["data"], "micro_batches": found["layout"]["micro_batches"],
                     "memory": peak / 1e9, "fits": found["fits"], "seconds": step["seconds"],
                     "rate": step["tokens_per_second_per_rank"], "mfu": 100 * step["mfu_a"],
                     "waiting": 100 * step["waiting"] / step["seconds"], "bubble": 100 * step["bubble"]})
    return rows


def table(rows):
    text = ("| GPUs | data | micro-batches | memory, GB | step, s | tokens/s a GPU | of the first | MFU (A) "
            "| collectives | bubble |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
    for r in rows:
        text += (f"| {r['gpus']:,} | {r['data']:,} | {r['micro_batches']:,} | {r['memory']:.1f}"
                 f"{'' if r['fits'] else ' (too large)'} | {r['seconds']:.2f} | {r['rate']:,.0f} | "
                 f"{100 * r['rate'] / rows[0]['rate']:.0f} % | {r['mfu']:.1f} % | {r['waiting']:.1f} % | "
                 f"{r['bubble']:.1f} % |\n")
    return text


def picture(title, rows):
    """Tokens/s of all GPUs over their number, both logarithmic, with the line of perfect scaling."""
    width, height, left, top = 640, 400, 80, 40
    x_of = [math.log2(r["gpus"]) for r in rows]
    y_of = [math.log2(r["gpus"] * r["rate"]) for r in rows]
    low, high = min(y_of), max(y_of[0] + x_of[-1] - x_of[0], max(y_of))

    def at(x, y):
        return (left + (width - left - 20) * (x - x_of[0]) / (x_of[-1] - x_of[0]),
                height - 50 - (height - 50 - top) * (y - low) / (high - low))

    def line(points, style):
        return f'<polyline fill="none" {style} points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>\n'

    out = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
           f'font-size="12">\n<rect width="{width}" height="{height}" fill="white"/>\n'
           f'<text x="{left}" y="20">{title} (predicted)</text>\n')
    perfect = [at(x_of[0], y_of[0]), at(x_of[-1], y_of[0] + x_of[-1] - x_of[0])]
    out += line(perfect, 'stroke="#999" stroke-dasharray="4"')
    out += line([at(x, y) for x, y in zip(x_of, y_of)], 'stroke="#06c" stroke-width="2"')
    for r, x, y in zip(rows, x_of, y_of):
        px, py = at(x, y)
        out += (f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="#06c"/>\n'
                f'<text x="{px:.1f}" y="{height - 30}" text-anchor="middle">{r["gpus"]:,}</text>\n'
                f'<text x="{px - 6:.1f}" y="{py - 8:.1f}" text-anchor="end">{r["mfu"]:.0f}%</text>\n')
    out += (f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">GPUs; at the points: MFU (A); dashed: '
            f'perfect scaling</text>\n<text x="16" y="{height / 2}" transform="rotate(-90 16 {height / 2})" '
            'text-anchor="middle">tokens/s of all, logarithmic</text>\n')
    return out + "</svg>\n"


def main():
    _, deck, _, sizes, keys = STUDIES[0]
    text = head(plan(deck, sizes[0], keys(sizes[0])))
    for study in STUDIES:
        name, deck, title, _, _ = study
        rows = rows_of(study)
        (PLACE / f"{name}.svg").write_text(picture(title.split(";")[0], rows))
        text += f"\n## {title}\n\nDeck `inputs/{deck}.yaml`.\n\n![{name}]({name}.svg)\n\n{table(rows)}"
    (PLACE / "README.md").write_text(text)


if __name__ == "__main__":
    main()
