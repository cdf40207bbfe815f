#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times this program's tokenizers, Hugging Face's `tokenizers` and `tiktoken` in turn on one core, and whether time
grows with the input; prints a table for perf/records. Times are the thread's processor time, all taken in one run.

usage: tokenizer_speed.py BUILD DATA   (a Python with tokenizers and tiktoken: the environment of scripts/oracles.sh;
BUILD holds perf/tokenizer_speed, DATA holds tokenizers/gpt2, tokenizers/llama3 and text/*.txt)
"""
import base64
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tiktoken  # noqa: E402
from tokenizers import Regex, Tokenizer, models, pre_tokenizers  # noqa: E402

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
ROUNDS = 5


class Ours:
    """perf/tokenizer_speed as a process that times passes when asked."""

    def __init__(self, program, tokenizer, file):
        self.process = subprocess.Popen([program, tokenizer, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def seconds(self, passes):
        self.process.stdin.write(f"{passes}\n")
        self.process.stdin.flush()
        seconds, tokens = self.process.stdout.readline().split()
        return float(seconds), int(tokens)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def timed(encode, documents):
    start = time.thread_time()
    tokens = sum(len(encode(document)) for document in documents)
    return time.thread_time() - start, tokens


def llama3_ranks(file):
    pairs = (line.split() for line in Path(file).read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def hugging_face(vocab, merges, pre_tokenizer, ignore_merges):
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def originals(data):
    """name -> (tokenizer for this program, [(name, function text -> ids)])"""
    gpt2 = models.BPE.read_file(str(data / "tokenizers/gpt2/encoder.json"), str(data / "tokenizers/gpt2/vocab.bpe"))
    ranks = llama3_ranks(data / "tokenizers/llama3/tokenizer.model")
    encoding = tiktoken.Encoding("llama3", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={})
    characters = {bytes([b]): c for b, c in byte_characters().items()}
    spell = {token: "".join(characters[token[i:i + 1]] for i in range(len(token))) for token in ranks}
    merges = [(spell[t[:i]], spell[t[i:]]) for t in sorted(ranks, key=ranks.get) for i in range(1, len(t))
              if t[:i] in ranks and t[i:] in ranks]
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return {
        "GPT-2": (str(data / "tokenizers/gpt2"),
                  [("tokenizers", hugging_face(*gpt2, pre_tokenizers.ByteLevel(add_prefix_space=False), False))]),
        "Llama-3": (str(data / "tokenizers/llama3/tokenizer.model"),
                    [("tokenizers", hugging_face({spell[t]: r for t, r in ranks.items()}, merges, split, True)),
                     ("tiktoken", encoding.encode_ordinary)]),
    }


def byte_characters():
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {b: chr(b) for b in plain}
    for number, b in enumerate(b for b in range(256) if b not in table):
        table[b] = chr(0x100 + number)
    return table


def worst_cases(program, tokenizer, folder):
    """Time of twice the input over time of the input: medians of rounds in which the two take turns."""
    for name, unit in (("a", "a"), ("space", " "), ("newline", "\n"), ("' of a", "'a"), ("U+4E2D", "\u4e2d"),
                       ("e + U+0301", "e\u0301"), ("digits", "7"), ("tabs and letters", "\ta")):
        files = [folder / f"worst-{size}" for size in (1 << 20, 1 << 21)]
        for file, size in zip(files, (1 << 20, 1 << 21)):
            file.write_text(unit * (size // len(unit.encode())))
        runs = [Ours(program, tokenizer, file) for file in files]
        for run in runs:
            run.seconds(1)  # touches memory for the first time
        rounds = [[run.seconds(1)[0] for run in runs] for _ in range(2 * ROUNDS + 1)]
        for run in runs:
            run.close()
        once, twice = (median(times) for times in zip(*rounds))
        print(f"| {name} | {once * 1e3:.1f} | {twice * 1e3:.1f} | {twice / once:.2f} |", flush=True)


def main():
    build, data = Path(sys.argv[1]), Path(sys.argv[2])
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    text = "".join(file.read_text() for file in sorted((data / "text").glob("*.txt")))
    documents = [text[i:i + 20000] for i in range(0, len(text), 20000)]
    size = sum(len(d.encode()) for d in documents) / 2**20
    print(f"{size:.2f} MiB in {len(documents)} documents, the fastest of {ROUNDS} rounds in which all take turns\n\n"
          "| tokenizer | llmtrain, MiB/s | tokenizers | times | tiktoken | times |\n|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "text").write_text("\0".join(documents))
        for name, (tokenizer, others) in originals(data).items():
            ours = Ours(build / "perf/tokenizer_speed", tokenizer, folder / "text")
            best, count = ours.seconds(1)
            fastest = {}
            for _ in range(ROUNDS):
                best = min(best, ours.seconds(3)[0])
                for other, encode in others:
                    seconds, tokens = timed(encode, documents)
                    assert tokens == count, (name, other, tokens, count)
                    fastest[other] = min(fastest.get(other, seconds), seconds)
            ours.close()
            cells = [f"{size / fastest[o]:.2f} | {fastest[o] / best:.1f}" if o in fastest else " | "
                     for o in ("tokenizers", "tiktoken")]
            print(f"| {name} | {size / best:.1f} | {' | '.join(cells)} |", flush=True)
        print("\n| Llama-3, all of | 1 MiB, ms | 2 MiB, ms | ratio |\n|---|--:|--:|--:|")
        worst_cases(build / "perf/tokenizer_speed", str(data / "tokenizers/llama3/tokenizer.model"), folder)
        print("\n| GPT-2, all of | 1 MiB, ms | 2 MiB, ms | ratio |\n|---|--:|--:|--:|")
        worst_cases(build / "perf/tokenizer_speed", str(data / "tokenizers/gpt2"), folder)


if __name__ == "__main__":
    main()
