# SPDX-License-Identifier: Apache-2.0
"""What the scripts that ask PyTorch share: dumps under transformers' names, and the same steps in PyTorch."""
import copy
import json
import subprocess
import sys
import types
from pathlib import Path

import h5py
import numpy as np

FOLDER = Path(__file__).resolve().parent
import training  # noqa: E402

sys.path = [place for place in sys.path if Path(place or ".").resolve() != FOLDER]  # tokenizers.py has a package's name
import torch  # noqa: E402
import transformers  # noqa: E402

CLASSES = {"llama": transformers.LlamaForCausalLM, "qwen2": transformers.Qwen2ForCausalLM,
           "qwen3": transformers.Qwen3ForCausalLM, "gpt2": transformers.GPT2LMHeadModel}
failures = []


def check(good, what):
    print(("  ok    " if good else "  FAIL  ") + what, flush=True)
    if not good:
        failures.append(what)


def call(binary, *arguments):
    result = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, arguments))}: exit {result.returncode}: {result.stderr}")
    return result.stdout


def quiet():
    """Nothing but our own lines, and products of fp32 numbers in fp32."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def load(folder, model_class, attention="eager"):
    """The model in fp32, from files that have all it needs and nothing else; without dropout."""
    model, info = model_class.from_pretrained(folder, output_loading_info=True, torch_dtype=torch.float32,
                                              attn_implementation=attention)
    left = {key: value for key, value in info.items() if value}
    check(not left, f"{Path(folder).name} loads in {model_class.__name__}: nothing missing, nothing left {left or ''}")
    return model.eval()


def state_dict(family, sections):
    """A dump's sections under transformers' names: GPT-2's q, k, v fused and its matrices transposed."""
    out = {}
    for name, value in sections.items():
        tensor = torch.tensor(value, dtype=torch.float32)
        if family == "gpt" and ".attn." in name and "o_proj" not in name:
            if "q_proj" not in name:
                continue
            parts = [sections[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
            tensor, name = torch.tensor(np.concatenate(parts), dtype=torch.float32), name.replace("q_proj", "c_attn")
        name = name.replace("attn.o_proj", "attn.c_proj") if family == "gpt" else name
        if family == "gpt" and name.startswith("transformer.h.") and tensor.ndim == 2:
            tensor = tensor.T.contiguous()
        out[name] = tensor
    return out


def sections_of(file, group):
    found = {}
    file[group].visititems(lambda path, item: found.update({path.replace("/", "."): item[()]})
                           if isinstance(item, h5py.Dataset) else None)
    return found


def dump(binary, deck_path, path, steps, *keys):
    """What `verify --dump` writes: arrays by name; initial, gradients and parameters under transformers' names."""
    call(binary, "verify", deck_path, "--dump", path, "--steps", steps, *keys)
    family = json.loads(deck_path.read_text())["model"]["family"]
    with h5py.File(path) as file:
        arrays = {key: file[key][()] for key in ("tokens", "targets", "weights", "loss", "grad_norm", "lr")}
        arrays |= {key: state_dict(family, sections_of(file, key)) for key in ("initial", "gradients", "parameters")}
    return types.SimpleNamespace(**arrays)


def doubles(tensors):
    return {name: tensor.detach().double().cpu().numpy() for name, tensor in tensors.items()}


def mean_loss(model, tokens, targets, weights):
    """Sum of the weighted cross-entropies, over the weights' sum."""
    logits = model(tokens).logits
    each = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
    return (each * weights.flatten()).sum() / weights.sum()


def train(model, deck, batches, steps, autocast=None, working=None):
    """The dump's initial weights, tokens and optimizer in PyTorch, with fp32 weights; under autocast of that type if
    one is given, or by a working copy of the weights, and so with activations, of that type. Losses, gradient norms,
    the first gradients and the last weights, both by name in fp64."""
    device = next(model.parameters()).device
    missing, unexpected = model.load_state_dict(batches.initial, strict=False)
    if unexpected or not set(missing) <= {"lm_head.weight"}:
        raise SystemExit(f"the initial weights are not the model's: {missing}, {unexpected}")
    model.tie_weights()
    named = dict(model.named_parameters())
    worker = copy.deepcopy(model) if working else model
    pairs = list(zip(worker.parameters(), model.parameters()))
    o = deck["optimizer"]
    groups = [{"params": [p for p in named.values() if p.ndim > 1], "weight_decay": o["weight_decay"]},
              {"params": [p for p in named.values() if p.ndim == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=tuple(o["betas"]), eps=o["eps"])
    found = types.SimpleNamespace(loss=[], grad_norm=[], gradients={}, parameters={})
    for step in range(steps):
        optimizer.zero_grad()
        for copied, weight in pairs if working else []:
            copied.data, copied.grad = weight.detach().to(working), None
        tokens, targets, weights = (torch.tensor(array[step], device=device)
                                    for array in (batches.tokens, batches.targets, batches.weights))
        with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
            loss = mean_loss(worker, tokens.long(), targets.long(), weights)
        loss.backward()
        for copied, weight in pairs if working else []:
            weight.grad = copied.grad.float()
        if step == 0:
            found.gradients = doubles({name: p.grad for name, p in named.items()})
        found.loss.append(loss.detach())
        found.grad_norm.append(torch.nn.utils.clip_grad_norm_(named.values(), o["clip"]))
        for group in optimizer.param_groups:
            group["lr"] = training.learning_rate(o, deck["run"]["steps"], step + 1)
        optimizer.step()
    found.loss, found.grad_norm = (np.array([float(x) for x in row]) for row in (found.loss, found.grad_norm))
    found.parameters = doubles(named)
    return found
