# SPDX-License-Identifier: Apache-2.0
"""Llama and GPT in NumPy, fp64: forward and hand-written backward, independent of the C++ program.

Written from the papers (arXiv 1706.03762, 1910.07467, 2002.05202, 2104.09864, 1607.06450, 1606.08415, 2305.13245) and
Hugging Face's conventions: matrices are [out, in], RoPE turns halves of a head, query head h reads kv head
h // (heads / kv_heads), the norm of queries and keys comes before RoPE.

Each operation returns its result and a function from the result's gradient to the gradients of its inputs.
"""
import math

import numpy as np

erf = np.vectorize(math.erf, otypes=[np.float64])


def linear(x, weight, bias=None):
    """y = x W^T + b: x [batch, seq, in], W [out, in], b [out]."""
    y = x @ weight.T if bias is None else x @ weight.T + bias

    def back(d_y):
        d_weight = np.einsum("bso,bsi->oi", d_y, x)
        return d_y @ weight, d_weight, d_y.sum((0, 1))

    return y, back


def rms_norm(x, weight, eps):
    """Over the last axis: x / sqrt(mean(x^2) + eps) * weight."""
    scale = 1.0 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    unit = x * scale

    def back(d_y):
        d_unit = d_y * weight
        d_x = scale * (d_unit - unit * np.mean(d_unit * unit, axis=-1, keepdims=True))
        return d_x, (d_y * unit).reshape(-1, weight.size).sum(0)

    return unit * weight, back


def layer_norm(x, weight, bias, eps):
    """Over the last axis: (x - mean) / sqrt(var + eps) * weight + bias, with the variance of the population."""
    centred = x - x.mean(-1, keepdims=True)
    scale = 1.0 / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + eps)
    unit = centred * scale

    def back(d_y):
        d_unit = d_y * weight
        mean, slope = d_unit.mean(-1, keepdims=True), np.mean(d_unit * unit, axis=-1, keepdims=True)
        return scale * (d_unit - mean - unit * slope), (d_y * unit).sum((0, 1)), d_y.sum((0, 1))

    return unit * weight + bias, back


def rope_frequencies(model):
    """Radians a position, [head_dim / 2]; stretched as in Llama 3.1 where the deck scales them."""
    width = model["head_dim"]
    frequency = model["rope"]["theta"] ** (-np.arange(0, width, 2) / width)
    scaling = model["rope"]["scaling"]
    if not scaling:
        return frequency
    turns = scaling["original_max_position"] * frequency / (2 * np.pi)  # over the original length
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)  # 1: short wavelengths, 0: long ones
    return kept * frequency + (1.0 - kept) * frequency / scaling["factor"]


def document_starts(tokens, end):
    """Where the document of each token [batch, seq] begins: behind the last `end` before it (None: all are one)."""
    starts = np.zeros(tokens.shape, dtype=np.int64)
    for i in range(1, tokens.shape[1] if end is not None else 0):
        starts[:, i] = np.where(tokens[:, i - 1] == end, i, starts[:, i - 1])
    return starts


def rope(x, frequency, positions):
    """Rotates (x[i], x[i + head_dim / 2]) by position * frequency[i]: x [batch, heads, seq, head_dim], positions
    [batch, seq]."""
    angle = positions[:, None, :, None] * frequency  # [batch, 1, seq, head_dim / 2]

    def turn(v, sign):
        first, second = np.split(v, 2, axis=-1)
        cos, sin = np.cos(angle), sign * np.sin(angle)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    return turn(x, 1.0), lambda d_y: turn(d_y, -1.0)


def attention(q, k, v, starts):
    """Causal softmax(q k^T / sqrt(head_dim)) v from each token's start [batch, seq] on: q [batch, heads, seq,
    head_dim], k and v with kv_heads."""
    group = q.shape[1] // k.shape[1]
    k_all, v_all = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scale = 1.0 / math.sqrt(q.shape[-1])
    scores = np.einsum("bhqd,bhkd->bhqk", q, k_all) * scale
    seen = np.tri(q.shape[2], dtype=bool) & (np.arange(q.shape[2]) >= starts[:, None, :, None])
    scores = np.where(seen, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)

    def back(d_y):
        d_p = np.einsum("bhqd,bhkd->bhqk", d_y, v_all)
        d_scores = p * (d_p - (d_p * p).sum(-1, keepdims=True)) * scale
        d_k = np.einsum("bhqk,bhqd->bhkd", d_scores, q)
        d_v = np.einsum("bhqk,bhqd->bhkd", p, d_y)
        shared = (k.shape[0], k.shape[1], group) + k.shape[2:]
        return np.einsum("bhqk,bhkd->bhqd", d_scores, k_all), d_k.reshape(shared).sum(2), d_v.reshape(shared).sum(2)

    return np.einsum("bhqk,bhkd->bhqd", p, v_all), back


def silu(x):
    s = 1.0 / (1.0 + np.exp(-x))
    return x * s, s * (1.0 + x * (1.0 - s))


def gelu(x):
    """x Phi(x), with the normal distribution's Phi."""
    phi = 0.5 * (1.0 + erf(x / math.sqrt(2.0)))
    return x * phi, phi + x * np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def gelu_tanh(x):
    """The tanh approximation of GeLU."""
    c = math.sqrt(2.0 / math.pi)
    t = np.tanh(c * (x + 0.044715 * x**3))
    return 0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * c * (1.0 + 3 * 0.044715 * x * x)


ACTIVATIONS = {"silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh}  # value and derivative


def cross_entropy(logits, targets, loss_weights):
    """Sum over tokens of weight * -log softmax(logits)[target], and its gradient by the logits."""
    shifted = logits - logits.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]
    gradient = np.exp(log_p)
    np.put_along_axis(gradient, targets[..., None],
                      np.take_along_axis(gradient, targets[..., None], axis=-1) - 1.0, axis=-1)
    return -(loss_weights * chosen).sum(), gradient * loss_weights[..., None]


class Run:
    """One forward pass; keeps what the backward needs."""

    def __init__(self, model, names, weights, factors=None, document_end=None):
        """`factors` (operation, shape): what dropout multiplies by. Operation 0 is the embedding's, 1 + 2 layer and
        2 + 2 layer those at the ends of the two branches. `document_end`: the token behind which a document begins
        that sees nothing before it."""
        self.model, self.names, self.weights, self.factors = model, names, weights, factors
        self.document_end = document_end
        self.gradients = {name: np.zeros_like(w) for name, w in weights.items()}

    def use(self, operation, x, *names, **options):
        """Applies an operation with named weights (None: absent); its backward adds their gradients, returns x's."""
        present = [self.weights.get(name) for name in names]
        y, back = operation(x, *present, **options)

        def pull(d_y):
            d_x, *d_weights = back(d_y)
            for name, d_weight in zip(names, d_weights):
                if name in self.gradients:
                    self.gradients[name] += d_weight
            return d_x

        return y, pull

    def dropout(self, x, operation):
        """x times the operation's factors: 0 where dropped, else 1 / (1 - probability)."""
        if self.factors is None:
            return x, lambda d_y: d_y
        factor = self.factors(operation, x.shape)
        return x * factor, lambda d_y: d_y * factor

    def norm(self, x, name):
        eps = self.model["norm_eps"]
        if self.model["family"] == "llama":
            return self.use(rms_norm, x, name + ".weight", eps=eps)
        return self.use(layer_norm, x, name + ".weight", name + ".bias", eps=eps)

    def linear(self, x, name):
        return self.use(linear, x, name + ".weight", name + ".bias")

    def heads(self, x, name, norm, turn):
        """A projection cut into heads [batch, heads, seq, head_dim], normed and rotated where the model does so."""
        y, back_linear = self.linear(x, name)
        batch, seq, width = y.shape
        y = y.reshape(batch, seq, -1, self.model["head_dim"]).transpose(0, 2, 1, 3)
        backs = []
        if norm and norm + ".weight" in self.weights:
            y, back = self.use(rms_norm, y, norm + ".weight", eps=self.model["norm_eps"])
            backs.append(back)
        if turn and self.model["positions"] == "rope":
            y, back = rope(y, rope_frequencies(self.model), self.positions)
            backs.append(back)

        def pull(d_y):
            for back in reversed(backs):
                d_y = back(d_y)
            return back_linear(d_y.transpose(0, 2, 1, 3).reshape(batch, seq, width))

        return y, pull

    def attention(self, x, block):
        n = self.names
        q, back_q = self.heads(x, block + n["q"], block + n["q_norm"], True)
        k, back_k = self.heads(x, block + n["k"], block + n["k_norm"], True)
        v, back_v = self.heads(x, block + n["v"], None, False)
        y, back = attention(q, k, v, self.starts)
        batch, _, seq, width = y.shape
        out, back_out = self.linear(y.transpose(0, 2, 1, 3).reshape(batch, seq, -1), block + n["o"])

        def pull(d_out):
            d_q, d_k, d_v = back(back_out(d_out).reshape(batch, seq, -1, width).transpose(0, 2, 1, 3))
            return back_q(d_q) + back_k(d_k) + back_v(d_v)

        return out, pull

    def mlp(self, x, block):
        n = self.names
        activation = ACTIVATIONS[self.model["activation"]]
        if self.model["family"] == "llama":  # gated
            gate, back_gate = self.linear(x, block + n["gate"])
            up, back_up = self.linear(x, block + n["up"])
            value, slope = activation(gate)
            y, back_down = self.linear(value * up, block + n["down"])

            def pull_gated(d_y):
                d = back_down(d_y)
                return back_gate(d * up * slope) + back_up(d * value)

            return y, pull_gated
        wide, back_up = self.linear(x, block + n["up"])
        value, slope = activation(wide)
        y, back_down = self.linear(value, block + n["down"])
        return y, lambda d_y: back_up(back_down(d_y) * slope)

    def embed(self, tokens):
        n = self.names
        table = self.weights[n["embedding"]]
        x = table[tokens]
        learned = self.model["positions"] == "learned"
        if learned:
            x = x + self.weights[n["positions"]][self.positions]

        x, back = self.dropout(x, 0)

        def pull(d_y):
            d_x = back(d_y)
            np.add.at(self.gradients[n["embedding"]], tokens, d_x)
            if learned:
                np.add.at(self.gradients[n["positions"]], self.positions, d_x)

        return x, pull

    def branch(self, x, norm, layer, block, operation):
        """x + dropout(layer(norm(x)))."""
        normed, back_norm = self.norm(x, norm)
        y, back_layer = layer(normed, block)
        y, back_dropout = self.dropout(y, operation)
        return x + y, lambda d: d + back_norm(back_layer(back_dropout(d)))

    def loss(self, tokens, targets, loss_weights):
        """Sum of the weighted losses of [batch, seq] tokens; afterwards `gradients` hold its gradient."""
        n = self.names
        self.starts = document_starts(tokens, self.document_end)  # [batch, seq]
        self.positions = np.arange(tokens.shape[1]) - self.starts
        x, back_embed = self.embed(tokens)
        backs = []
        for layer in range(self.model["layers"]):
            block = n["block"].format(layer)
            x, back = self.branch(x, block + n["norm_1"], self.attention, block, 1 + 2 * layer)
            backs.append(back)
            x, back = self.branch(x, block + n["norm_2"], self.mlp, block, 2 + 2 * layer)
            backs.append(back)
        x, back_norm = self.norm(x, n["norm"])
        head = n["embedding"] if self.model["tied"] else n["head"]
        logits, back_head = self.use(linear, x, head)
        total, d_logits = cross_entropy(logits, targets, loss_weights)
        d_x = back_norm(back_head(d_logits))
        for back in reversed(backs):
            d_x = back(d_x)
        back_embed(d_x)
        return total
