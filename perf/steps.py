#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One row of a table from a run's metrics.jsonl: medians of the steps after the third.

usage: steps.py METRICS [--ranks N] [--must M] [--exposed] CELL...
The columns: CELL ..., tokens/s a rank, M and the % of it, MFU in %, exposed communication in % of the step and by axis,
timed steps, all of timing.
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
    parser.add_argument("--exposed", action="store_true", help="one more column: communication that nothing hid")
    arguments = parser.parse_args()
    lines = [json.loads(line) for line in arguments.metrics.read_text().splitlines()]
    timings = [line["timing"] for line in lines if "loss" in line][3:]  # the first ones warm up
    exposed = [timing.pop("exposed", {}) for timing in timings]
    middle = {name: statistics.median(timing.get(name) or 0 for timing in timings) for name in timings[0]}
    rate = middle["tokens_per_second"] / arguments.ranks
    cells = [*arguments.cells, f"{rate:,.0f}"]
    if arguments.must:
        cells += [f"{arguments.must:,}", f"{100 * rate / arguments.must:.1f} %"]
    cells.append(f"{100 * middle.get('mfu', 0):.1f}")
    if arguments.exposed:
        shares = {axis: 100 * statistics.median(step[axis] for step in exposed) / middle["step_seconds"]
                  for axis in exposed[0]}
        parts = [f"{axis} {share:.2f}" for axis, share in shares.items() if axis != "total" and share > 0]
        cells.append(f"{shares['total']:.2f}" + (f" ({', '.join(parts)})" if parts else ""))
    cells += [str(len(timings)), ", ".join(f"{name} {value:.3g}" for name, value in middle.items())]
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
