#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference's numbers into NAME.json beside this file, or checks those that are there.

usage: golden.py [--write]; both first check the reference's own gradients by finite differences. A file holds the deck,
the numbers of each step, and for each section of initial weights, gradients and final parameters its norm and its dot
product with a fixed pseudo-random vector; tests/golden/models.cpp repeats them.
"""
import argparse
import json
import sys
from pathlib import Path

import numpy as np

import cases
import training

FOLDER = Path(__file__).resolve().parent


def probe(array):
    """Norm of an array, and its dot product with numbers in [-1, 1) of the generator seeded with its size."""
    direction = training.lcg_numbers(array.size, array.size) * 2.0**-30 - 1.0
    return [training.norm_of([array]), float(array.reshape(-1) @ direction)]


def make(name):
    """What NAME.json is to hold."""
    deck = cases.deck(name)
    weights = training.initial_weights(deck["model"], deck["run"]["seed"])
    sections = {section: {"shape": list(w.shape), "initial": probe(w)} for section, w in weights.items()}
    steps = []
    for step, (loss, norm, lr, gradients) in enumerate(training.train(deck, weights, cases.batches(deck)), 1):
        steps.append({"loss": loss, "grad_norm": norm, "lr": lr})
        for key in {1: ["first_gradient"], cases.STEPS: ["last_gradient"]}.get(step, []):
            for section, gradient in gradients.items():
                sections[section][key] = probe(gradient)
    for section, w in weights.items():
        sections[section]["parameters"] = probe(w)
    return {"deck": deck, "steps": steps, "sections": sections}


def text_of(content):
    """JSON with a line for each step and section."""
    steps = ",\n".join("  " + json.dumps(step) for step in content["steps"])
    sections = ",\n".join(f"  {json.dumps(name)}: {json.dumps(s)}" for name, s in content["sections"].items())
    return (f'{{\n "deck": {json.dumps(content["deck"])},\n "steps": [\n{steps}\n ],\n'
            f' "sections": {{\n{sections}\n }}\n}}\n')


def differences(a, b, path=""):
    """Places where two such contents differ; numbers may by 1e-12, as sums do between versions of NumPy."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return [place for key in a for place in differences(a[key], b[key], f"{path}/{key}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [place for i, pair in enumerate(zip(a, b)) for place in differences(*pair, f"{path}/{i}")]
    if isinstance(a, float) and isinstance(b, float):
        return [] if abs(a - b) <= 1e-12 * max(abs(a), abs(b)) + 1e-13 else [f"{path}: {a!r} is now {b!r}"]
    return [] if a == b else [f"{path}: {a!r} is now {b!r}"]


def gradient_error(name, directions=8):
    """Largest relative error of the reference's gradient along random directions, by a fourth-order difference."""
    deck = cases.deck(name)
    model = deck["model"]
    random = np.random.default_rng(7)
    weights = training.initial_weights(model, deck["run"]["seed"])
    weights = {key: w + 0.1 * random.standard_normal(w.shape) for key, w in weights.items()}
    batch = *next(iter(cases.batches(deck))), training.dropout_factors(deck, 1)
    _, gradients = training.mean_loss(model, weights, *batch)
    worst = []
    for _ in range(directions):
        along = {key: random.standard_normal(w.shape) for key, w in weights.items()}

        def at(t):
            return training.mean_loss(model, {key: w + t * along[key] for key, w in weights.items()}, *batch)[0]

        h = 3e-5
        measured = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
        predicted = sum(float((gradients[key] * along[key]).sum()) for key in along)
        worst.append(abs(measured - predicted) / abs(measured))
    return float(np.max(worst))  # NaN stays NaN


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the files instead of checking them")
    arguments = parser.parse_args()
    failed = False
    for name in cases.MODELS:
        error = gradient_error(name)
        path = FOLDER / f"{name}.json"
        content = make(name)
        found = differences(json.loads(path.read_text()), content) if path.exists() else [f"no {path.name}"]
        if found and arguments.write:
            path.write_text(text_of(content))
        failed = failed or not error <= 1e-8 or bool(found and not arguments.write)
        print(f"{name}: reference against finite differences {error:.1e} (bound 1e-8); "
              + ("; ".join(found[:5]) + (": written" if arguments.write else "") if found else "golden numbers hold"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
