#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains Llama, Qwen2 and GPT-2 of shapes as on GPUs on real text, in llmtrain and in PyTorch with transformers: the same
weights, tokens and optimizer, in fp32 and in bf16 with fp32 weights (there: autocast).

usage: torch_shapes.py BINARY [--device cuda] [--small] [--text FILE] [--only NAME] [--keep FOLDER]; exit 1 if a figure
is above its bound. Text: FILE, or this repository's sources, through a tokenizer trained on it. PyTorch in fp32 is the
reference. Needs torch, transformers, numpy, h5py.
"""
import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import compare
import torch_training
from torch_training import FOLDER, call, check, failures, torch, transformers

LLAMA = {"family": "llama", "layers": 4, "hidden": 512, "heads": 8, "kv_heads": 2, "head_dim": 64, "ffn": 1408,
         "seq_len": 512, "vocab": 4096, "rope": {"theta": 500000.0}}
MODELS = {
    "llama": LLAMA,
    "qwen2": LLAMA | {"layers": 3, "heads": 4, "head_dim": 128, "ffn": 1536, "seq_len": 1024, "qkv_bias": True,
                      "tied": True, "norm_eps": 1e-6, "rope": {"theta": 1e6}},
    "gpt2": {"family": "gpt", "layers": 3, "hidden": 512, "heads": 8, "kv_heads": 8, "head_dim": 64, "ffn": 2048,
             "seq_len": 256, "vocab": 4096, "tied": True},
}
STEPS = 100
TOKENS = 2048  # a step, in two micro-batches
SMALL = {"layers": 2, "hidden": 128, "heads": 2, "ffn": 384, "seq_len": 128}  # and heads as wide
FOLDERS = ("README.md", "include", "src", "kernels", "tests", "perf", "scripts", "inputs", "jobs")
KINDS = {".md", ".cpp", ".hpp", ".cu", ".cuh", ".py", ".sh", ".yaml"}


def make_data(binary, folder, text):
    """A tokenizer of as many ids as the models have and a token file of documents; returns the keys of a deck's data."""
    root = FOLDER.parents[1]
    places = [text] if text else [path for name in FOLDERS for path in [root / name, *sorted((root / name).rglob("*"))]
                                  if path.suffix in KINDS and path.is_file()]
    lines = folder / "text.jsonl"
    lines.write_text("".join(json.dumps({"text": path.read_text()}) + "\n" for path in places))
    files = ["preprocess", "--input", lines, "--output-prefix", folder / "text"]
    tokenizer = folder / "text_tokenizer.json"
    call(binary, *files, "--train-tokenizer", LLAMA["vocab"])
    print(call(binary, *files, "--tokenizer", tokenizer).strip())
    return {"train": [str(folder / "text_text_document")], "split": "100,0,0", "tokenizer": str(tokenizer)}


def make_deck(name, data, folder, device, small):
    model, sequences = MODELS[name], TOKENS // MODELS[name]["seq_len"]
    if small:
        model, sequences = model | SMALL | {"kv_heads": 2 if name == "gpt2" else 1}, 4
    deck = {
        "run": {"name": name, "steps": STEPS, "stop_after": 1, "dir": str(folder / name), "device": device},
        "model": model, "data": data,
        "schedule": {"micro_batch": sequences // 2, "global_batch": sequences},
        "optimizer": {"lr": 3e-4, "min_lr": 3e-5, "schedule": "cosine", "warmup_steps": 10, "betas": [0.9, 0.95],
                      "eps": 1e-8, "clip": 1.0, "weight_decay": 0.1},
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(deck, indent=1))
    return path, deck


def bounded(what, found, bound):
    check(found <= bound, f"{what:66} {found:8.1e}   bound {bound:8.1e}")


def root_mean_square(values):
    return float(np.sqrt(np.mean(np.square(values))))


def compare_runs(ours, theirs):
    """Both by precision; PyTorch in fp32 is what all are compared with."""
    reference = theirs["fp32"]
    deviation = {what: compare.deviation(run.gradients, reference.gradients)
                 for what, run in (("fp32", ours["fp32"]), ("bf16", ours["bf16"]), ("torch", theirs["bf16"]))}
    bounded("fp32: every gradient of step 1", deviation["fp32"], 1e-5)
    bounded(f"bf16: every gradient of step 1 (PyTorch's in bf16: {deviation['torch']:.1e})", deviation["bf16"], 3e-2)
    first, steps = slice(20), len(reference.loss)
    off = {kind: np.abs(ours[kind].loss / reference.loss - 1) for kind in ours}
    bounded(f"fp32: losses of {len(off['fp32'][first])} steps (of {steps}: {off['fp32'].max():.1e})",
            off["fp32"][first].max(), 1e-5)
    bounded(f"bf16: losses of {steps} steps", off["bf16"].max(), 3e-2)
    windows = [max(abs(a[i:i + 20].mean() / b[i:i + 20].mean() - 1) for i in range(0, steps, 20))
               for a, b in ((run["bf16"].loss, reference.loss) for run in (ours, theirs))]
    bounded(f"bf16: means of 20 losses (PyTorch's in bf16: {windows[1]:.1e})", windows[0], 1e-3)
    for n in (20, 50, 100):
        print("DEBUG", n, [root_mean_square((x.loss - y.loss)[:n]) for x, y in ((ours["bf16"], reference), (theirs["bf16"], reference), (ours["bf16"], theirs["bf16"]))])
        print("DEBUG", n, [np.median(np.abs(x.loss - y.loss)[:n]) for x, y in ((ours["bf16"], reference), (theirs["bf16"], reference), (ours["bf16"], theirs["bf16"]))])
    print(f"        losses of steps 1 and {steps}: PyTorch {reference.loss[0]:.4f} and {reference.loss[-1]:.4f}, in bf16 "
          f"{theirs['bf16'].loss[-1]:.4f}; llmtrain {ours['fp32'].loss[-1]:.4f}, in bf16 {ours['bf16'].loss[-1]:.4f}")


def one_model(binary, name, deck_path, deck, folder, device, steps):
    started = time.monotonic()
    call(binary, deck_path)
    call(binary, "checkpoint", "export", folder / name / "checkpoints", folder / f"{name}.hf", "--dtype", "fp32")
    ours, theirs = {}, {}
    for kind in ("fp32", "bf16"):
        ours[kind] = torch_training.dump(binary, deck_path, folder / f"{name}.{kind}.h5", steps,
                                         f"precision.compute={kind}")
    own = time.monotonic() - started
    started = time.monotonic()
    for kind, attention, autocast in (("fp32", "eager", None), ("bf16", "sdpa", torch.bfloat16)):
        model = torch_training.load(folder / f"{name}.hf", torch_training.CLASSES[name], attention).to(device)
        theirs[kind] = torch_training.train(model, deck, ours["fp32"], steps, autocast)
    for run in ours.values():
        run.gradients = torch_training.doubles({key: run.gradients[key] for key in theirs["fp32"].gradients})
    compare_runs(ours, theirs)
    print(f"        {steps} steps four times: llmtrain {own:.0f} s, PyTorch {time.monotonic() - started:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("--device", default="cpu", help="cpu or cuda, for both programs")
    parser.add_argument("--text", type=Path, metavar="FILE", help="text to train on")
    parser.add_argument("--small", action="store_true", help="fewer numbers of everything, for a CPU")
    parser.add_argument("--steps", type=int, default=STEPS, help="compare only so many")
    parser.add_argument("--only", choices=list(MODELS), help="one model")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave all files there")
    arguments = parser.parse_args()
    binary = str(arguments.binary.resolve())
    torch_training.quiet()
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {where}")
    with contextlib.ExitStack() as stack:
        folder = (arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        data = make_data(binary, folder, arguments.text)
        for name in [arguments.only] if arguments.only else MODELS:
            print(name)
            deck_path, deck = make_deck(name, data, folder, arguments.device, arguments.small)
            one_model(binary, name, deck_path, deck, folder, arguments.device, arguments.steps)
    print(f"{len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
