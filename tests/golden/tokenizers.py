#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ids of PyPI's `tokenizers` and `tiktoken` into tokenizers.json beside this file, or checks those there.

usage: tokenizers.py [--write]; the vocabulary is trained here, on the project's LICENSE and the texts below. The file
holds the ids of these texts, and digests of the ids of many more that tests/golden/tokenizers.cpp makes alike.
"""
import base64
import itertools
import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path = [place for place in sys.path if Path(place or ".").resolve() != FOLDER]  # this file has a package's name
import tiktoken  # noqa: E402
import tokenizers  # noqa: E402
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

LETTERS = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]",
           r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?")
REGEXES = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
              r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
              r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": f"{LETTERS[0]}*{LETTERS[1]}+{LETTERS[2]}|{LETTERS[0]}+{LETTERS[1]}*{LETTERS[2]}"
             r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "other": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",  # for no scanner; matches no digits
}
# (file kind, pattern, whole words before merges, NFC)
KINDS = [("json", "gpt2", False, False), ("json", "llama3", True, False), ("json", "o200k", False, False),
         ("json", "qwen2", False, True), ("json", "other", False, False), ("ranks", "gpt2", True, False),
         ("ranks", "llama3", True, False), ("ranks", "cl100k", True, False), ("ranks", "o200k", True, False)]
SPECIAL = "<|endoftext|>"
NEIGHBOURS = ["a", "A", "1", " ", "\n", "'", ".", "\u0301", "\u4e2d", "\u3000", "s", "/"]
# One of each general category and kind of white space, and those that fold to others.
CLASSES = ["A", "z", "\u01c5", "\u02b0", "\u05d0", "\u0301", "\u0903", "\u20dd", "7", "\u2160", "\u00b2", "_", "-", "(",
           ")", "\u00ab", "\u00bb", "'", "+", "$", "^", "\u00a6", " ", "\u2028", "\u2029", "\t", "\u00ad", "\ue000",
           "\u0378", "\n", "\r", "\u0085", "\u017f", "s", "\u212a", "l", "\u00df", "\U0001f600", "\u200d", "\u3000"]
TEXTS = [
    "", " ", "  ", "a", "The licence says: you may not use this file except in compliance with the License.",
    "I'm sure they'LL say it's HE'S, we'd've, 'tis; don't 'S 'LL 'Re \u2019s",
    "1 12 123 1234 12345 3.14159 1,000,000 \u0663\u0664", "tabs\t\tand  spaces   end   ",
    "lines\n\n\n  more\r\n\r\n \t x\n ", "x = foo(bar[0], **kw); // done\n/* so */\n\tif (a) {\n",
    "camelCase HTTPServer XMLHttpRequest iPhone McDonald",
    "na\u00efve caf\u00e9 cafe\u0301 \u00c5ngstr\u00f6m A\u030a",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u4f60\u597d\uff0c\u4e16\u754c "
    "\u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
    "\u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947 Vi\u1ec7t Nam "
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f1e9\U0001f1ea\u2764\ufe0f \ufeff\u200b",
    SPECIAL + " in text" + SPECIAL + SPECIAL + "\n<|endoftext|", "a" * 100, " " * 70 + "b", "\n" * 45, "ab" * 60,
    "?!" * 50,
]
RANDOM_TEXTS = 2000


class Digest:
    """FNV-1a over whole numbers, with a mark behind each text."""

    def __init__(self):
        self.value = 14695981039346656037

    def add(self, ids):
        value = self.value
        for number in ids:
            value = (value ^ number) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
        self.value = (value ^ 0xFFFFFFFF) * 1099511628211 & 0xFFFFFFFFFFFFFFFF


def lcg(seed):
    while True:
        seed = (6364136223846793005 * seed + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        yield seed >> 33


def scalar_texts():
    """Characters alone and between neighbours: all of the first planes' scripts, and each 61st of the others."""
    for c in range(0x110000):
        if 0xD800 <= c < 0xE000 or not (c < 0x3100 or 0xA000 <= c < 0xAC00 or c % 61 == 0):
            continue
        yield chr(c)
        yield "".join(n + chr(c) + n for n in NEIGHBOURS)


def class_texts():
    for size in (2, 3):
        for group in itertools.product(CLASSES, repeat=size):
            yield "".join(group)


def random_texts():
    numbers = lcg(1)
    for _ in range(RANDOM_TEXTS):
        text = ""
        for _ in range(next(numbers) % 40):
            kind, number = next(numbers) % 4, next(numbers)
            c = number % 128 if kind < 2 else number % 0x3000 if kind == 2 else number % 0x110000
            text += "\ufffd" if 0xD800 <= c < 0xE000 else chr(c)
        yield text


SETS = {"scalars": scalar_texts, "classes": class_texts, "random": random_texts}


def train():
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer("llama3")
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=[SPECIAL], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([(FOLDER.parent.parent / "LICENSE").read_text(), *TEXTS], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def pre_tokenizer(pattern):
    if pattern == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(tokenizers.Regex(REGEXES[pattern]), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def json_text(vocab, merges, pattern, whole, nfc):
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=whole))
    tokenizer.pre_tokenizer = pre_tokenizer(pattern)
    tokenizer.decoder = decoders.ByteLevel()
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens([SPECIAL])
    return tokenizer.to_str()


def ranks_of(vocab):
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    byte = {chr(b): b for b in plain}
    byte.update((chr(0x100 + i), b) for i, b in enumerate(b for b in range(256) if b not in plain))
    return {bytes(byte[c] for c in token): id for token, id in vocab.items() if token != SPECIAL}


def encoders(vocab, merges):
    """For each kind: the name under which this program reads its file, that file's text, and text -> ids."""
    ranks = ranks_of(vocab)
    rank_lines = "".join(f"{base64.b64encode(t).decode()} {r}\n" for t, r in sorted(ranks.items(), key=lambda x: x[1]))
    for kind, pattern, whole, nfc in KINDS:
        if kind == "json":
            text = json_text(vocab, merges, pattern, whole, nfc)
            original = tokenizers.Tokenizer.from_str(text)
            yield kind, pattern, text, lambda t, o=original: o.encode(t, add_special_tokens=False).ids
        else:
            original = tiktoken.Encoding(pattern, pat_str=REGEXES[pattern], mergeable_ranks=ranks,
                                         special_tokens={SPECIAL: vocab[SPECIAL]})
            yield kind, pattern, rank_lines, lambda t, o=original: o.encode(t, allowed_special="all")


def make():
    vocab, merges = train()
    kinds = []
    for kind, pattern, text, encode in encoders(vocab, merges):
        row = {"kind": kind, "pattern": pattern, "ids": [encode(t) for t in TEXTS]}
        for name, texts in SETS.items():
            digest = Digest()
            for one in texts():
                digest.add(encode(one))
            row[name] = digest.value
        if kind == "json":
            content = json.loads(text)
            row["file"] = {**content, "model": {**content["model"], "vocab": {}, "merges": []}}
        kinds.append(row)
        print(f"tokenizers: {kind} {pattern}", flush=True)
    names = sorted(vocab, key=vocab.get)
    return {"special": SPECIAL, "vocab": names, "merges": merges, "neighbours": NEIGHBOURS, "classes": CLASSES,
            "texts": TEXTS, "random_texts": RANDOM_TEXTS, "kinds": kinds}


def main():
    file = FOLDER / "tokenizers.json"
    made = make()
    text = "{\n" + ",\n".join(f" {json.dumps(key)}: " + (
        "[\n" + ",\n".join("  " + json.dumps(row) for row in value) + "\n ]" if key == "kinds" else json.dumps(value))
        for key, value in made.items()) + "\n}\n"
    if "--write" in sys.argv[1:]:
        file.write_text(text)
    elif json.loads(file.read_text()) != json.loads(text):
        sys.exit("tokenizers.json: tokenizers or tiktoken give other ids now; write it anew and see what changed")
    print("tokenizers.json: the ids of tokenizers and tiktoken")


if __name__ == "__main__":
    main()
