# SPDX-License-Identifier: Apache-2.0
"""The tiny models that the program and the reference compute alike, as decks, and their tokens."""
import copy

import numpy as np

import training

LLAMA = {
    "family": "llama", "layers": 2, "hidden": 16, "heads": 4, "kv_heads": 2, "head_dim": 4, "ffn": 24, "seq_len": 12,
    "vocab": 29, "norm_eps": 1e-5, "tied": False, "qkv_bias": False, "qk_norm": False, "activation": "silu",
    "positions": "rope", "rope": {"theta": 500.0, "scaling": {}}, "dropout": 0, "init_std": 0.3,
}
GPT = LLAMA | {
    "family": "gpt", "kv_heads": 4, "ffn": 40, "tied": True, "qkv_bias": True, "activation": "gelu_tanh",
    "positions": "learned",
}
# With heads of 8 these frequencies are kept, between, between and stretched in full.
SCALING = {"factor": 8.0, "low_freq_factor": 0.1, "high_freq_factor": 1.0, "original_max_position": 8}

MODELS = {
    "llama": LLAMA,
    "llama_tied": LLAMA | {"tied": True, "kv_heads": 4, "head_dim": 6},
    "llama_options": LLAMA | {"hidden": 32, "head_dim": 8, "qkv_bias": True, "qk_norm": True,
                              "rope": {"theta": 100.0, "scaling": SCALING}},
    "gpt": GPT,
    # 18 features: dropout decides on four at a time.
    "gpt_dropout": GPT | {"tied": False, "hidden": 18, "heads": 3, "kv_heads": 1, "head_dim": 6, "activation": "gelu",
                          "dropout": 0.25},
}

STEPS = 4  # checked updates; the learning rate's horizon is longer


def deck(name):
    """A deck with every key that a step depends on. eps is large, so that it counts, and so that rounding noise in a
    gradient that is zero (GPT's key bias) is not blown up to a whole update."""
    return copy.deepcopy({
        "run": {"name": name, "seed": 987654321012345, "steps": 6},
        "model": MODELS[name],
        "schedule": {"micro_batch": 2, "global_batch": 4},
        "precision": {"compute": "fp64"},
        "optimizer": {
            "lr": 0.02, "min_lr": 0.004, "schedule": "cosine", "warmup_steps": 2, "betas": [0.8, 0.9], "eps": 1e-4,
            "weight_decay": 0.1, "clip": 1.0,
        },
    })


def batches(deck):
    """Tokens, targets and loss weights [global_batch, seq_len] of each step: three runs of one generator, seeded with
    the step's number. Every fifth draw of the last leaves a target out."""
    shape = (deck["schedule"]["global_batch"], deck["model"]["seq_len"])
    n = shape[0] * shape[1]
    for step in range(1, STEPS + 1):
        draws = training.lcg_numbers(3 * n, step).reshape((3,) + shape)
        vocab = deck["model"]["vocab"]
        yield draws[0] % vocab, draws[1] % vocab, (draws[2] % 5 != 0).astype(np.float64)
