#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One row of a table from a run's metrics.jsonl: medians of the steps after the third.

usage: steps.py METRICS [--ranks N] [--must M] CELL...
The columns: CELL ..., tokens/s a rank, M and the % of it, MFU in %, timed steps, all of timing.
"""
import argparse
import json
import statistics
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("metrics", type=Path)
    parser.add_argument("cells", nargs="+", help="first columns")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--must", type=int, help="tokens/s a rank to be reached: two more columns")
    arguments = parser.parse_args()
    lines = [json.loads(line) for line in arguments.metrics.read_text().splitlines()]
    timings = [line["timing"] for line in lines if "loss" in line][3:]  # the first ones warm up
    middle = {name: statistics.median(timing.get(name) or 0 for timing in timings) for name in timings[0]}
    rate = middle["tokens_per_second"] / arguments.ranks
    cells = [*arguments.cells, f"{rate:,.0f}"]
    if arguments.must:
        cells += [f"{arguments.must:,}", f"{100 * rate / arguments.must:.1f} %"]
    cells += [f"{100 * middle.get('mfu', 0):.1f}", str(len(timings)),
              ", ".join(f"{name} {value:.3g}" for name, value in middle.items())]
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
