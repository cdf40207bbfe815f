#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Blends of megatron-core's BlendedDataset, and files of its IndexedDatasetBuilder: blends.json, which
tests/golden/blends.cpp compares with llmtrain's.

usage: blends.py [--write] [PROGRAM]: checks the file, or writes it; with PROGRAM (./llmtrain) megatron-core also reads
what `llmtrain preprocess` and `llmtrain data merge` write. Needs megatron-core and PyTorch
(scripts/oracles.sh --megatron).
"""
import json
import logging
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from megatron.core.datasets.blended_dataset import BlendedDataset
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import DType, IndexedDataset, IndexedDatasetBuilder

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from golden_file import finish, versions  # noqa: E402
from sample_order import SEEDS, WRAP, Tokenizer, digest, lcg_numbers  # noqa: E402

# (documents, lengths below): large enough for a sample in every part of every split used here.
SETS = [(40, 40), (300, 40), (700, 9), (12, 900), (60, 300), (25, 70), (90, 50), (33, 60), (80, 20), (20, 200)]
SPLITS = ["80,20,0", "1,1,1", "50,50,0"]
SEQ_LENS = [3, 16, 24]
# Sets by number, and their weights; no weights: as large as they are.
BLENDS = [
    ([0, 1], [0.3, 0.7]),
    ([1, 2, 3], [1, 1, 2]),
    ([4], [5]),
    ([0, 3], None),
    ([2, 4, 1], None),
    ([3, 3], [0.25, 0.125]),
    ([1, 4], [0.001, 1000]),
    (list(range(10)), [0.1, 0.7, 1e-3, 3, 0.9, 1.1, 0.3, 17.3, 0.01, 2.2]),
    (list(range(7)), [0.1, 0.2, 0.3, 0.1, 0.05, 0.15, 0.1]),
    (list(range(10)), None),
]
SAMPLES = [1, 7, 60, 431, 2000]


def lengths_of(number):
    documents, below = SETS[number]
    return [1 + x % (below - 1) for x in lcg_numbers(documents, 100 + number)]


def tokens_of(number):
    return np.arange(sum(lengths_of(number))) * (2 * number + 1) % WRAP


def write_set(prefix, number):
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=DType.optimal_dtype(WRAP))
    begin = 0
    for length in lengths_of(number):
        builder.add_document(torch.tensor(tokens_of(number)[begin:begin + length]), [length])
        begin += length
    builder.finalize(f"{prefix}.idx")


def part_of(dataset):
    samples = (dataset[i] for i in range(len(dataset)))
    part = {"samples": len(dataset),
            "tokens": digest(t for s in samples for t in s["tokens"].tolist() + s["labels"].tolist()[-1:])}
    if isinstance(dataset, BlendedDataset):
        part |= {"sets": digest(dataset.dataset_index), "picks": digest(dataset.dataset_sample_index),
                 "first": dataset.dataset_index[:20].tolist(), "of": [len(d) for d in dataset.datasets]}
    return part


def case_of(folder, run):
    """None where Megatron refuses: it draws more of a set than it made."""
    sets, weights = BLENDS[run % len(BLENDS)]
    turn = run // len(BLENDS)
    split, seq_len, seed = SPLITS[turn % len(SPLITS)], SEQ_LENS[run % len(SEQ_LENS)], SEEDS[run % len(SEEDS)] or 77
    asked = [SAMPLES[(run + turn) % len(SAMPLES)], SAMPLES[(run + turn + 1) % len(SAMPLES)], 0]
    prefixes = [f"{folder}/set{number}" for number in sets]
    config = GPTDatasetConfig(random_seed=seed, sequence_length=seq_len, blend=(prefixes, weights), split=split,
                              tokenizer=Tokenizer(), reset_position_ids=False, reset_attention_mask=False,
                              eod_mask_loss=False, create_attention_mask=False)
    config.split_matrix = config.split_matrix[:2] + [None]
    try:
        built = BlendedMegatronDatasetBuilder(GPTDataset, asked, lambda: True, config).build()
    except IndexError:
        return None
    return {"sets": sets, "weights": weights, "split": split, "seq_len": seq_len, "seed": seed, "asked": asked[:2],
            "parts": [part_of(d) for d in built[:2]]}


# Documents as lists of sequence lengths, and the vocabulary that the token type follows from.
FILES = [
    (300, [[5], [], [1], [0], [70000]]),
    (65499, [[3, 4], [], [2, 1, 9]]),
    (65500, [[3, 4], [1]]),
    (200000, [[], [8], [6, 0, 2], []]),
    (128256, []),
]


def file_tokens(n, vocab):
    return [x % vocab for x in lcg_numbers(n, n + vocab)]


def build(prefix, vocab, documents):
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=DType.optimal_dtype(vocab))
    for number, lengths in enumerate(documents):
        ids = torch.tensor(file_tokens(sum(lengths), vocab + number), dtype=torch.int64) % vocab
        builder.add_document(ids, lengths)
    return builder


def file_digests(prefix):
    return {end: digest(Path(f"{prefix}.{end}").read_bytes()) for end in ("bin", "idx")}


def files(folder):
    lines = []
    for number, (vocab, documents) in enumerate(FILES):
        prefix = f"{folder}/file{number}"
        build(prefix, vocab, documents).finalize(f"{prefix}.idx")
        merged = build(f"{folder}/merged{number}", vocab, documents)
        for _ in range(2):
            merged.add_index(prefix)
        merged.finalize(f"{folder}/merged{number}.idx")
        lines.append("  " + json.dumps({"vocab": vocab, "documents": documents, "file": file_digests(prefix),
                                        "merged": file_digests(f"{folder}/merged{number}")}, separators=(",", ":")))
    return lines


def check_program(program, folder):
    """megatron-core reads what llmtrain wrote: the same ids, lengths and documents."""
    texts = ["one", "", "two \u00e4\u20ac", "", "x" * 5000]
    text = "".join(json.dumps({"text": t}) + "\n" for t in texts)
    Path(f"{folder}/in.jsonl").write_text(text, encoding="utf-8")

    def run(*arguments):
        subprocess.run([program, *arguments], check=True, capture_output=True)

    run("preprocess", "--input", f"{folder}/in.jsonl", "--output-prefix", f"{folder}/ours", "--tokenizer", "bytes",
        "--append-eod")
    ours = f"{folder}/ours_text_document"
    run("data", "merge", "--output", f"{folder}/twice", ours, ours)
    expected = [list(t.encode()) + [256] for t in texts if t]
    for prefix, times in ((ours, 1), (f"{folder}/twice", 2)):
        read = IndexedDataset(prefix)
        assert [read[i].tolist() for i in range(len(read))] == expected * times, prefix
        bounds = [0] + [k * len(expected) + b for k in range(times) for b in (1, 1, 2, 2, 3)]
        assert read.document_indices.tolist() == bounds, prefix
    print("megatron-core reads what llmtrain preprocess and data merge wrote")


def main():
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(len(SETS)):
            write_set(f"{folder}/set{number}", number)
        cases = [case_of(folder, run) for run in range(6 * len(BLENDS))]
        lines = ["  " + json.dumps(case, separators=(",", ":")) for case in cases if case]
        sets = [{"documents": n, "below": below} for n, below in SETS]
        finish(Path(__file__).with_suffix(".json"),
               f'{{\n "made_by": "tests/golden/blends.py with {versions()}",\n "wrap": {WRAP},\n'
               f' "sets": {json.dumps(sets)},\n "cases": [\n' + ",\n".join(lines)
               + '\n ],\n "files": [\n' + ",\n".join(files(folder)) + "\n ]\n}\n")
        programs = [argument for argument in sys.argv[1:] if argument != "--write"]
        if programs:
            check_program(programs[0], folder)


if __name__ == "__main__":
    main()
