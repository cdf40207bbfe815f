#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exchanges tiny models with Hugging Face's transformers, both ways, and compares logits, losses and gradients.

usage: huggingface.py BINARY [--only NAME] [--keep FOLDER] [--no-training] [--device cuda]; exit 1 if something differs
by more than logits max|a - b| <= 1e-5 max(1, max|b|); gradients of step 1, each section in compare.py's norm, 1e-5;
losses of 20 steps 1e-5 relative; files of 16-bit numbers what torch rounds to; models saved by transformers come back
with the same bits. Needs torch, transformers (4 or 5), safetensors, numpy, h5py.
"""
import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

import compare
import torch_training
from torch_training import CLASSES, call, check, failures, load, torch, transformers

from safetensors.torch import load_file, save_file  # after it: tokenizers.py beside this file has a package's name

LLAMA = {"family": "llama", "layers": 2, "hidden": 48, "heads": 6, "kv_heads": 3, "ffn": 88, "seq_len": 40,
         "init_std": 0.1}
GPT = {"family": "gpt", "layers": 2, "hidden": 48, "heads": 6, "kv_heads": 6, "ffn": 100, "seq_len": 40, "tied": True,
       "init_std": 0.1}
SCALING = {"theta": 10000.0, "scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                         "original_max_position": 16}}
MODELS = {  # the byte tokenizer has 257 ids, a prime
    "llama": LLAMA,
    "llama_tied": LLAMA | {"tied": True, "vocab": 263, "norm_eps": 1e-6},
    "llama_scaled": LLAMA | {"rope": SCALING, "head_dim": 10},
    "qwen2": LLAMA | {"qkv_bias": True},
    "qwen2_tied": LLAMA | {"qkv_bias": True, "tied": True, "rope": {"theta": 1e6}},
    "qwen3": LLAMA | {"qk_norm": True, "head_dim": 12},
    "gpt2": GPT,
    "gpt2_untied": GPT | {"tied": False, "activation": "gelu", "vocab": 269, "norm_eps": 1e-6},
}
STEPS = 20

def make_deck(name, prefix, folder, device):
    deck = {
        "run": {"name": name, "steps": STEPS, "stop_after": 4, "dir": str(folder / name), "device": device,
                "threads": 1},
        "model": MODELS[name], "schedule": {"micro_batch": 2, "global_batch": 4}, "precision": {"compute": "fp32"},
        "optimizer": {"lr": 1e-3, "min_lr": 1e-4, "warmup_steps": 4, "schedule": "cosine",
                      "betas": [0.9, 0.95], "eps": 1e-8, "clip": 1.0, "weight_decay": 0.1},
        "data": {"train": [prefix], "split": "100,0,0"},
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(deck, indent=1))
    return path


def logits_of(binary, checkpoint, tokens, folder):
    out = folder / "logits.h5"
    call(binary, "generate", checkpoint, "--prompt-ids", ",".join(map(str, tokens)), "--logits", out, "--threads", 1)
    with h5py.File(out) as file:
        return file["logits"][()]


def compare_logits(ours, model, tokens, what):
    with torch.no_grad():
        theirs = model(torch.tensor([tokens])).logits[0].numpy()
    worst = np.abs(ours - theirs).max() / max(1, np.abs(theirs).max()) if ours.shape == theirs.shape else np.inf
    check(worst <= 1e-5, f"logits {what}: {worst:.1e} (bound 1e-5)")


def weights_of(folder):
    weights = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        weights |= load_file(path)
    return weights


def same(a, b):
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)


def exports(binary, checkpoint, model_class, tokens, folder):
    """Every form of an export; returns the model from the fp32 one."""
    whole, shards = folder / "whole", folder / "shards"
    call(binary, "checkpoint", "export", checkpoint, whole, "--dtype", "fp32")
    call(binary, "checkpoint", "export", checkpoint, shards, "--dtype", "fp32", "--shard-gb", "5e-5")
    check((shards / "model.safetensors.index.json").exists() and len(list(shards.glob("model-*"))) > 2, "shards")
    ours = logits_of(binary, checkpoint, tokens, folder)
    model = load(whole, model_class)
    compare_logits(ours, model, tokens, "of the export")
    compare_logits(ours, load(shards, model_class), tokens, "of the export in shards")
    weights = weights_of(whole)
    check(same(weights, weights_of(shards)), "shards hold the same weights")
    for dtype, kind in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        call(binary, "checkpoint", "export", checkpoint, folder / dtype, "--dtype", dtype)
        rounded = {key: value.to(kind) for key, value in weights.items()}
        check(same(weights_of(folder / dtype), rounded), f"the {dtype} export holds what torch rounds to")
        loaded = model_class.from_pretrained(folder / dtype, torch_dtype="auto")
        check(loaded.dtype == kind, f"config.json says {dtype}")
    automatic = transformers.AutoConfig.from_pretrained(whole)
    check(type(automatic) is type(model.config), "AutoConfig finds the class")
    tokenizer = transformers.AutoTokenizer.from_pretrained(whole)
    text = "The old ship,\n\t\u00e4\u6f22\U0001f600 sails."
    check(tokenizer.encode(text) == list(text.encode()) and tokenizer.decode(list(text.encode())) == text
          and tokenizer.eos_token_id == 256, "AutoTokenizer gives bytes their ids, and back")
    return model, ours


def imports(binary, model, ours, tokens, folder):
    """What transformers saves, with and without the head's class, and with buffers among the weights."""
    model.save_pretrained(folder / "saved")
    forms = {"saved": folder / "saved"}
    model.save_pretrained(folder / "saved_shards", max_shard_size="50KB")
    forms["saved in shards"] = folder / "saved_shards"
    base = model.base_model
    if model.config.tie_word_embeddings:
        base.save_pretrained(folder / "base")
        forms["saved without the head's class"] = folder / "base"
    old = folder / "old"  # files as they were years ago
    old.mkdir()
    (old / "config.json").write_text((folder / "saved" / "config.json").read_text())
    weights = weights_of(folder / "saved")
    if model.config.model_type == "gpt2":
        n = model.config.n_positions
        for layer in range(model.config.n_layer):
            mask = torch.ones(n, n, dtype=torch.bool).tril()
            weights[f"transformer.h.{layer}.attn.bias"] = (mask if layer else mask.float()).view(1, 1, n, n)
            weights[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
        if model.config.tie_word_embeddings:
            weights = {key.removeprefix("transformer."): value for key, value in weights.items()}
    else:
        for layer in range(model.config.num_hidden_layers):
            weights[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    if model.config.tie_word_embeddings:
        weights["lm_head.weight"] = model.get_input_embeddings().weight.detach().clone()
    save_file(weights, old / "model.safetensors")  # no metadata either
    forms["with buffers and a tied head"] = old
    for what, form in forms.items():
        target = folder / f"back_{form.name}"
        call(binary, "checkpoint", "import", form, target, "precision.compute=fp32")
        check(np.array_equal(logits_of(binary, target, tokens, folder), ours), f"import of {what}: the same logits")
        call(binary, "checkpoint", "export", target, folder / f"again_{form.name}", "--dtype", "fp32")
        check(same(weights_of(folder / f"again_{form.name}"), weights_of(folder / "whole")), "... and the same weights")
    half = model.to(torch.bfloat16)
    half.save_pretrained(folder / "half")
    call(binary, "checkpoint", "import", folder / "half", folder / "back_half", "precision.compute=fp32")
    call(binary, "checkpoint", "export", folder / "back_half", folder / "again_half", "--dtype", "fp32")
    expected = {key: value.float() for key, value in weights_of(folder / "bf16").items()}
    check(same(weights_of(folder / "again_half"), expected), "import of a bf16 model: the rounded weights")


def training(binary, deck_path, model, folder, device):
    """The same weights, tokens and optimizer in both programs: the first gradients, then every loss."""
    deck = json.loads(deck_path.read_text())
    ours = torch_training.dump(binary, deck_path, folder / "dump.h5", STEPS)
    theirs = torch_training.train(model.to(device), deck, ours, STEPS)
    gradients, parameters = (torch_training.doubles({name: group[name] for name in theirs.gradients})
                             for group in (ours.gradients, ours.parameters))
    worst = compare.deviation(gradients, theirs.gradients)
    check(worst <= 1e-5, f"every gradient of step 1: {worst:.1e} (bound 1e-5)")
    worst, norms = (np.max(np.abs(a / b - 1)) for a, b in ((ours.loss, theirs.loss),
                                                          (ours.grad_norm, theirs.grad_norm)))
    check(worst <= 1e-5, f"losses of {STEPS} steps: {worst:.1e} (bound 1e-5); gradient norms {norms:.1e}")
    bound = 2 * STEPS * deck["optimizer"]["lr"]
    moved = max(np.abs(parameters[name] - value).max() for name, value in theirs.parameters.items())
    check(moved <= bound, f"weights after them: {moved:.1e} (bound {bound:.0e})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("--only", choices=list(MODELS), help="one model")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave all files there")
    parser.add_argument("--no-training", action="store_true", help="do not compare losses and gradients")
    parser.add_argument("--device", default="cpu", help="cpu or cuda: where both programs train")
    arguments = parser.parse_args()
    binary = str(arguments.binary.resolve())
    torch.set_num_threads(1)
    torch_training.quiet()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    with contextlib.ExitStack() as stack:
        folder = (arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        prefix = compare.make_data(binary, folder, "text", 200)
        for name in [arguments.only] if arguments.only else MODELS:
            print(name)
            deck = make_deck(name, prefix, folder, arguments.device)
            call(binary, deck)
            place = folder / name / "exchange"
            place.mkdir()
            tokens = np.random.default_rng(3).integers(0, 257, MODELS[name]["seq_len"]).tolist()
            model_class = CLASSES[name.split("_")[0]]
            model, ours = exports(binary, folder / name / "checkpoints", model_class, tokens, place)
            imports(binary, model, ours, tokens, place)
            if not arguments.no_training:
                training(binary, deck, load(place / "whole", model_class), place, arguments.device)
    print(f"{len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
