#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the ids that `llmtrain preprocess` writes with those of PyPI's `tokenizers` and `tiktoken`, text by text.

usage: compare_tokenizers.py ./llmtrain [RANDOM_TEXTS]; the vocabulary of tokenizers.py, its texts, every Unicode scalar
value alone and between neighbours, classes in pairs and triples, the project's own sources, and random texts (100,000);
and, where LLMTRAIN_TEST_DATA names a folder with them, tokenizers/gpt2, tokenizers/llama3/tokenizer.model and
text/*.txt.
"""
import base64
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path = [place for place in sys.path if Path(place or ".").resolve() != HERE]  # a file there has a package's name
import tiktoken  # noqa: E402
import tokenizers as originals  # noqa: E402
from tokenizers import models  # noqa: E402

import importlib.util  # noqa: E402

spec = importlib.util.spec_from_file_location("golden_tokenizers", HERE / "tokenizers.py")
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)


def read_set(prefix):
    """The documents of a .bin/.idx pair of one sequence or none a document."""
    index = Path(f"{prefix}.idx").read_bytes()
    sequences, bounds = struct.unpack_from("<QQ", index, 18)
    lengths = np.frombuffer(index, np.int32, sequences, 34)
    documents = np.frombuffer(index, np.int64, bounds, 34 + 12 * sequences)
    tokens = np.fromfile(f"{prefix}.bin", {4: np.int32, 8: np.uint16}[index[17]])
    places = np.concatenate([[0], np.cumsum(lengths)])
    return [tokens[places[a]:places[b]] for a, b in zip(documents[:-1], documents[1:])]


class Comparison:
    def __init__(self, program, folder):
        self.program, self.folder, self.failed = program, Path(folder), 0

    def texts(self, name, tokenizer, texts, encode_all):
        """One line for a set of texts; the first differences are shown."""
        lines = self.folder / "texts.jsonl"
        with lines.open("w") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        prefix = self.folder / "set"
        command = [self.program, "preprocess", "--input", lines, "--output-prefix", prefix, "--tokenizer", tokenizer]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        mine, theirs = read_set(f"{prefix}_text_document"), encode_all(texts)
        assert len(mine) == len(theirs) == len(texts)
        wrong = [i for i, (a, b) in enumerate(zip(mine, theirs)) if a.tolist() != list(b)]
        for i in wrong[:3]:
            print(f"  {texts[i][:60]!r}: {mine[i][:12].tolist()}, not {list(theirs[i])[:12]}")
        print(f"{name}: {len(texts)} texts, {sum(map(len, theirs))} ids, {len(wrong)} texts differ", flush=True)
        self.failed += len(wrong)


def scalar_texts():
    for c in range(0x110000):
        if not 0xD800 <= c < 0xE000:
            yield chr(c)
            yield "".join(n + chr(c) + n for n in golden.NEIGHBOURS)


def random_texts(count):
    numbers = random.Random(5)
    for _ in range(count):
        size = numbers.randrange(40)
        if numbers.random() < 0.3:
            yield numbers.randbytes(size).decode(errors="replace")
        else:
            most = numbers.choice([0x80, 0x250, 0x3000, 0x110000])
            points = (numbers.randrange(most) for _ in range(size))
            yield "".join("\ufffd" if 0xD800 <= c < 0xE000 else chr(c) for c in points)


def source_texts():
    root = HERE.parent.parent
    listing = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=True)
    names = listing.stdout.split("\n")
    return [(root / name).read_text(errors="replace") for name in names if (root / name).is_file()]


def batch(tokenizer):
    return lambda texts: [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]


def trained(comparison, random_count):
    vocab, merges = golden.train()
    sets = {"texts": golden.TEXTS, "sources": source_texts(), "classes": list(golden.class_texts()),
            "scalars": list(scalar_texts()), "random": list(random_texts(random_count))}
    for kind, pattern, text, encode in golden.encoders(vocab, merges):
        file = comparison.folder / ("tokenizer.json" if kind == "json" else "ranks")
        file.write_text(text)
        name = str(file)
        if kind == "ranks":
            name = f"{{file: {file}, pattern: {pattern}, special: {{'{golden.SPECIAL}': {vocab[golden.SPECIAL]}}}}}"
        encode_all = lambda texts, one=encode: [one(text) for text in texts]  # noqa: E731
        if kind == "json":
            encode_all = batch(originals.Tokenizer.from_str(text))
        for group, texts in sets.items():
            if pattern == "other":  # no scanner: PCRE2 knows the code points of an older Unicode
                texts = [t for t in texts if all(ord(c) < 0x250 for c in t)]
            comparison.texts(f"{kind} {pattern}, {group}", name, texts, encode_all)


def real(comparison, data, random_count):
    text = "".join(file.read_text() for file in sorted((data / "text").glob("*.txt")))
    texts = [text, *text.split("\n\n"), *source_texts(), *golden.TEXTS, *random_texts(random_count), *scalar_texts()]
    folder = data / "tokenizers/gpt2"
    gpt2 = originals.Tokenizer(models.BPE.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe")))
    gpt2.pre_tokenizer = golden.pre_tokenizer("gpt2")
    gpt2.add_special_tokens(["<|endoftext|>"])
    comparison.texts("GPT-2", str(folder), texts + ["a" * 1000000, " " * 1000000], batch(gpt2))
    file = data / "tokenizers/llama3/tokenizer.model"
    ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in file.read_bytes().splitlines())}
    numbers = iter(range(251))
    named = {128000: "<|begin_of_text|>", 128001: "<|end_of_text|>", 128006: "<|start_header_id|>",
             128007: "<|end_header_id|>", 128009: "<|eot_id|>"}
    special = {named.get(i) or f"<|reserved_special_token_{next(numbers)}|>": i for i in range(128000, 128256)}
    llama3 = tiktoken.Encoding("llama3", pat_str=golden.REGEXES["llama3"], mergeable_ranks=ranks,
                               special_tokens=special)
    comparison.texts("Llama-3", str(file), texts,
                     lambda ts: llama3.encode_batch(ts, num_threads=1, allowed_special="all"))


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100000
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(sys.argv[1], folder)
        data = os.environ.get("LLMTRAIN_TEST_DATA")
        if data:
            real(comparison, Path(data), count)
        else:
            print("LLMTRAIN_TEST_DATA is not set: GPT-2's and Llama 3's own vocabularies were not compared")
        trained(comparison, count)
    if comparison.failed:
        sys.exit(f"{comparison.failed} texts differ")


if __name__ == "__main__":
    main()
