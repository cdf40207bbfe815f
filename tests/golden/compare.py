#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `llmtrain verify` on the tiny models in several layouts and compares every number with the NumPy reference.

usage: compare.py BINARY [--only NAME] [--ranks N:ZERO ...] [--keep FOLDER]; exit 1 if a difference is above its bound:
loss, grad_norm and lr 1e-12 relative; initial weights 1e-14, gradients and parameters 1e-9 in the norm of the design:
||a - b|| / (||b|| + 1e-3 G sqrt(n / N)), G the norm of all sections together, n and N element counts.
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

import cases
import training

MASKED = ("llama", "gpt")  # models that are trained with data.document_mask too
BOUNDS = {"loss": 1e-12, "grad_norm": 1e-12, "lr": 1e-12, "initial": 1e-14, "gradients": 1e-9, "parameters": 1e-9}


def make_data(binary, folder, name, length):
    """A token file of documents of `length` bytes of pseudo-random printable text; returns its prefix."""
    letters = (32 + training.lcg_numbers(30 * 200, 1) % 95).astype(np.uint8).tobytes().decode()
    lines = [json.dumps({"text": letters[i:i + length]}) for i in range(0, len(letters), length)]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    subprocess.run([binary, "preprocess", "--input", folder / f"{name}.jsonl", "--output-prefix", folder / name,
                    "--tokenizer", "bytes", "--append-eod"], check=True, stdout=subprocess.DEVNULL)
    return str(folder / f"{name}_text_document")


def dump(binary, deck, prefix, ranks, zero, masked, folder):
    """The file that `verify` writes for the deck on so many ranks."""
    data = {"train": [prefix], "split": "100,0,0", "seed": 5, "document_mask": masked}
    deck = deck | {"data": data, "parallel": {"zero": zero}}
    deck["run"] = deck["run"] | {"dir": str(folder / "run"), "device": "cpu", "threads": 1}
    deck["schedule"] = deck["schedule"] | {"micro_batch": 1}
    path, out = folder / f"{deck['run']['name']}.yaml", folder / f"{deck['run']['name']}-{ranks}-{zero}.h5"
    path.write_text(json.dumps(deck, indent=1))  # JSON is YAML
    environment = os.environ | {"OMPI_MCA_mpi_yield_when_idle": "1"}
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
    subprocess.run([*launcher, binary, "verify", path, "--dump", out, "--steps", str(cases.STEPS)], check=True,
                   env=environment)
    return out


def whole(file, group, sections):
    """Arrays of a group of the file by section name; no section may be missing or unknown."""
    found = {}
    file[group].visititems(lambda path, item: found.update({path.replace("/", "."): item[()]})
                           if isinstance(item, h5py.Dataset) else None)
    if found.keys() != set(sections):
        raise SystemExit(f"/{group}: sections differ: {sorted(found.keys() ^ set(sections))}")
    return found


def deviation(found, expected, noise=1e-3):
    """Largest difference of a section in the norm above, with `noise` in place of 1e-3."""
    total = training.norm_of(expected.values())
    elements = sum(b.size for b in expected.values())
    worst = []
    for name, b in expected.items():
        if found[name].shape != b.shape:
            raise SystemExit(f"{name}: shape {found[name].shape}, expected {b.shape}")
        scale = training.norm_of([b]) + noise * total * np.sqrt(b.size / elements)
        worst.append(training.norm_of([found[name] - b]) / scale)
    return float(np.max(worst))  # NaN stays NaN


def compare(deck, path, document_end):
    """Deviations of a dump from the reference, by kind."""
    with h5py.File(path) as file:
        batches = list(zip(*(file[key][()] for key in ("tokens", "targets", "weights"))))
        batches = [(tokens, targets, weights.astype(np.float64)) for tokens, targets, weights in batches]
        weights = training.initial_weights(deck["model"], deck["run"]["seed"])
        result = {"initial": deviation(whole(file, "initial", weights), weights)}
        rows = list(training.train(deck, weights, batches, document_end))
        for i, key in enumerate(("loss", "grad_norm", "lr")):
            expected = np.array([row[i] for row in rows])
            result[key] = float(np.max(np.abs(file[key][()] - expected) / np.abs(expected)))
        result["gradients"] = deviation(whole(file, "gradients", weights), rows[0][3])
        result["parameters"] = deviation(whole(file, "parameters", weights), weights)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("--only", choices=list(cases.MODELS), help="one model")
    parser.add_argument("--ranks", nargs="+", default=["1:0", "2:0", "2:1"], metavar="N:ZERO", help="layouts")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave decks and dumps there")
    arguments = parser.parse_args()
    binary = str(arguments.binary.resolve())
    failed = False
    with contextlib.ExitStack() as stack:
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        prefix = make_data(binary, folder, "text", 200)
        short = make_data(binary, folder, "short", 7)
        print("largest deviation   ranks zero  " + "  ".join(f"{key:>10}" for key in BOUNDS))
        print("bound                           " + "  ".join(f"{bound:10.1e}" for bound in BOUNDS.values()))
        models = [arguments.only] if arguments.only else list(cases.MODELS)
        for name, masked in [(name, False) for name in models] + [(name, True) for name in models if name in MASKED]:
            deck = cases.deck(name)
            deck["model"]["vocab"] = 257  # bytes and the end of a document
            for layout in arguments.ranks:
                ranks, zero = (int(word) for word in layout.split(":"))
                path = dump(binary, deck, short if masked else prefix, ranks, zero, masked, folder)
                found = compare(deck, path, 256 if masked else None)
                bad = [key for key, bound in BOUNDS.items() if not found[key] <= bound]
                failed = failed or bool(bad)
                print(f"{name + (', documents' if masked else ''):20}{ranks:4} {zero:4}   "
                      + "  ".join(f"{found[key]:10.1e}" for key in BOUNDS)
                      + ("   ABOVE: " + ", ".join(bad) if bad else ""), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
