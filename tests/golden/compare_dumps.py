#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares dumps of `llmtrain verify` of one deck, as of two devices, within the bounds of driver/compare.hpp.

usage: compare_dumps.py PRECISION REFERENCE.h5 DUMP.h5...; exit 1 if a difference is above the bound of that precision:
every gradient e ||b|| + u G sqrt(n / N), losses e relative; bf16 dumps are compared with one in fp32.
"""
import sys
from pathlib import Path

import h5py
import numpy as np

import compare

BOUNDS = {"fp64": (1e-13, 1e-14), "fp32": (1e-5, 1e-6), "bf16": (3e-2, 6e-2)}  # e, u


def numbers(path):
    with h5py.File(path) as file:
        sections = []
        file["gradients"].visititems(lambda name, item: sections.append(name.replace("/", "."))
                                     if isinstance(item, h5py.Dataset) else None)
        return file["tokens"][()], file["loss"][()], compare.whole(file, "gradients", sections)


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in BOUNDS:
        print(__doc__.strip(), file=sys.stderr)
        return 64
    error, noise = BOUNDS[sys.argv[1]]
    tokens, loss, gradients = numbers(sys.argv[2])
    failed = False
    for path in sys.argv[3:]:
        its_tokens, its_loss, its_gradients = numbers(path)
        if not np.array_equal(tokens, its_tokens) or gradients.keys() != its_gradients.keys():
            raise SystemExit(f"{path}: other tokens or sections than {sys.argv[2]}")
        worst = compare.deviation(its_gradients, gradients, noise / error)
        off = np.max(np.abs(its_loss / loss - 1))
        good = worst <= error and off <= error
        failed = failed or not good
        print(f"{Path(path).name}: gradients {worst:.1e}, {len(loss)} losses {off:.1e}, bound {error:.0e}"
              + ("" if good else "   ABOVE"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
