# SPDX-License-Identifier: Apache-2.0
"""The reference's parameters, initial values, tokens and optimizer: what surrounds the model in a training step."""
import math

import numpy as np

import reference

# Section names: Hugging Face's, but for GPT's attention, which is fused there.
LLAMA = {
    "block": "model.layers.{}.", "embedding": "model.embed_tokens.weight", "norm": "model.norm",
    "head": "lm_head.weight", "norm_1": "input_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj",
    "v": "self_attn.v_proj", "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm", "o": "self_attn.o_proj",
    "norm_2": "post_attention_layernorm", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}
GPT = {
    "block": "transformer.h.{}.", "embedding": "transformer.wte.weight", "positions": "transformer.wpe.weight",
    "norm": "transformer.ln_f", "head": "lm_head.weight", "norm_1": "ln_1", "q": "attn.q_proj", "k": "attn.k_proj",
    "v": "attn.v_proj", "q_norm": "attn.q_norm", "k_norm": "attn.k_norm", "o": "attn.o_proj", "norm_2": "ln_2",
    "up": "mlp.c_fc", "down": "mlp.c_proj",
}
NAMES = {"llama": LLAMA, "gpt": GPT}

WORD = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., SC 2011): counter is four arrays of 32-bit words, key two words."""
    c = [np.asarray(word, np.uint64) for word in counter]
    k0, k1 = key
    for _ in range(10):
        even, odd = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(odd >> HALF) ^ c[1] ^ np.uint64(k0), odd & WORD, (even >> HALF) ^ c[3] ^ np.uint64(k1), even & WORD]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def name_hash(name):
    """64-bit FNV-1a."""
    value = 14695981039346656037
    for byte in name.encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return value


def normal_numbers(seed, stream, n):
    """The first n of the N(0, 1) sequence of (seed, stream): Box-Muller on one Philox block a pair. The first 64 bits
    give the radius (52 of them), the last 64 the angle (a quarter turn, a sign, 51 bits within)."""
    pair = np.arange((n + 1) // 2, dtype=np.uint64)
    low, high = stream & 0xFFFFFFFF, stream >> 32
    block = philox([pair & WORD, pair >> HALF, np.full_like(pair, low), np.full_like(pair, high)],
                   (seed & 0xFFFFFFFF, seed >> 32))
    first, second = (block[1] << HALF) | block[0], (block[3] << HALF) | block[2]
    u = 1.0 - (first >> np.uint64(12)).astype(np.float64) * 2.0**-52
    radius = np.sqrt(-2.0 * np.log(u))
    within = ((second >> np.uint64(10)) & np.uint64(2**52 - 1)) | np.uint64(1)
    angle = (within.astype(np.float64) * 2.0**-52 - 0.5) * (np.pi / 2)
    angle += np.where(second & np.uint64(2**62), np.pi / 2, 0.0) + np.where(second & np.uint64(2**63), np.pi, 0.0)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1).reshape(-1)[:n]


def lcg(state):
    """Knuth's MMIX generator: the next state of 64 bits."""
    return (6364136223846793005 * state + 1442695040888963407) % 2**64


def lcg_numbers(n, seed):
    """n integers of 31 bits."""
    out = np.empty(n, np.int64)
    for i in range(n):
        seed = lcg(seed)
        out[i] = seed >> 33
    return out


def parameters(model):
    """Rows (name, shape, standard deviation or constant, kind, decayed) of every section."""
    n, hidden, width = NAMES[model["family"]], model["hidden"], model["head_dim"]
    std = model["init_std"]
    gpt = model["family"] == "gpt"
    rows = []

    def matrix(name, out, columns, deviation):
        rows.append((name, (out, columns), deviation, "normal", True))

    def vector(name, size, value):
        rows.append((name, (size,), value, "constant", False))

    def norm(name):
        vector(name + ".weight", hidden, 1.0)
        if gpt:
            vector(name + ".bias", hidden, 0.0)

    def linear(name, out, columns, deviation, bias):
        matrix(name + ".weight", out, columns, deviation)
        if bias:
            vector(name + ".bias", out, 0.0)

    matrix(n["embedding"], model["vocab"], hidden, std)
    if model["positions"] == "learned":
        matrix(n["positions"], model["seq_len"], hidden, std)
    small = std / math.sqrt(2 * model["layers"])  # of the projections into the residual stream, as GPT-2
    for layer in range(model["layers"]):
        at = {key: n["block"].format(layer) + name for key, name in n.items()}
        norm(at["norm_1"])
        for key, heads in (("q", model["heads"]), ("k", model["kv_heads"]), ("v", model["kv_heads"])):
            linear(at[key], heads * width, hidden, std, model["qkv_bias"])
        if model["qk_norm"]:
            vector(at["q_norm"] + ".weight", width, 1.0)
            vector(at["k_norm"] + ".weight", width, 1.0)
        linear(at["o"], hidden, model["heads"] * width, small, gpt)
        norm(at["norm_2"])
        for key in ("up",) if gpt else ("gate", "up"):
            linear(at[key], model["ffn"], hidden, std, gpt)
        linear(at["down"], hidden, model["ffn"], small, gpt)
    norm(n["norm"])
    if not model["tied"]:
        matrix(n["head"], model["vocab"], hidden, std)
    return rows


def initial_weights(model, seed):
    weights = {}
    for name, shape, value, kind, _ in parameters(model):
        if kind == "normal":
            weights[name] = value * normal_numbers(seed, name_hash(name), math.prod(shape)).reshape(shape)
        else:
            weights[name] = np.full(shape, value)
    return weights


def dropout_factors(deck, step):
    """For reference.Run: a 32-bit Philox word an element, of (seed, operation, sample's number in the run, position,
    feature), against the probability; None without dropout."""
    probability, batch = deck["model"]["dropout"], deck["schedule"]["global_batch"]
    if probability == 0:
        return None
    seed = deck["run"]["seed"] ^ int.from_bytes(b"dropout!", "big")  # apart from the initial weights

    def factors(operation, shape):
        sequences, length, features = shape
        sample = (step - 1) * batch + np.arange(sequences, dtype=np.uint64)[:, None, None]
        position = np.arange(length, dtype=np.uint64)[None, :, None]
        quad = np.arange((features + 3) // 4, dtype=np.uint64)[None, None, :]
        counter = [quad, position, sample & WORD, (sample >> HALF) | np.uint64(operation << 16)]
        words = np.stack(philox(np.broadcast_arrays(*counter), (seed & 0xFFFFFFFF, seed >> 32)), axis=-1)
        kept = words.reshape(sequences, length, -1)[:, :, :features] >= round(probability * 2**32)
        return kept / (1.0 - probability)

    return factors


def mean_loss(model, weights, tokens, targets, loss_weights, factors=None, document_end=None):
    """Loss and gradients, both of the mean over target tokens."""
    run = reference.Run(model, NAMES[model["family"]], weights, factors, document_end)
    count = loss_weights.sum()
    loss = run.loss(tokens, targets, loss_weights) / count
    return loss, {name: g / count for name, g in run.gradients.items()}


def norm_of(arrays):
    return math.sqrt(sum(float((a * a).sum()) for a in arrays))


def learning_rate(optimizer, steps, t):
    """Of update t = 1, 2, ...: linear warm-up, then the cosine to min_lr at the horizon."""
    warmup, peak, low = optimizer["warmup_steps"], optimizer["lr"], optimizer["min_lr"]
    if t <= warmup:
        return peak * t / warmup
    if optimizer["schedule"] == "constant":
        return peak
    progress = min(1.0, (t - warmup) / (steps - warmup))
    return low + (peak - low) * (1.0 + math.cos(math.pi * progress)) / 2.0


class AdamW:
    """arXiv 1711.05101 with clipping by the global norm (factor clip / (norm + 1e-6), as PyTorch)."""

    def __init__(self, deck):
        self.options, self.steps = deck["optimizer"], deck["run"]["steps"]
        self.decayed = {name: decayed for name, _, _, _, decayed in parameters(deck["model"])}
        self.first = {name: 0.0 for name in self.decayed}
        self.second = {name: 0.0 for name in self.decayed}

    def update(self, t, weights, gradients):
        """Changes `weights`; returns the learning rate and the norm before clipping."""
        o = self.options
        lr, norm = learning_rate(o, self.steps, t), norm_of(gradients.values())
        factor = min(1.0, o["clip"] / (norm + 1e-6)) if o["clip"] > 0 else 1.0
        beta1, beta2 = o["betas"]
        for name, g in gradients.items():
            g = g * factor
            self.first[name] = beta1 * self.first[name] + (1 - beta1) * g
            self.second[name] = beta2 * self.second[name] + (1 - beta2) * g * g
            m, v = self.first[name] / (1 - beta1**t), self.second[name] / (1 - beta2**t)
            decay = o["weight_decay"] if self.decayed[name] else 0.0
            weights[name] = weights[name] - lr * (m / (np.sqrt(v) + o["eps"]) + decay * weights[name])
        return lr, norm


def train(deck, weights, batches, document_end=None):
    """One (loss, norm, lr, gradients) a batch (tokens, targets, loss weights); changes `weights`."""
    optimizer = AdamW(deck)
    for t, batch in enumerate(batches, 1):
        loss, gradients = mean_loss(deck["model"], weights, *batch, dropout_factors(deck, t), document_end)
        lr, norm = optimizer.update(t, weights, gradients)
        yield loss, norm, lr, gradients
