#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The orders that megatron-core's GPTDataset gives on a grid of data sets: sample_order.json, which
tests/golden/sample_order.cpp compares with llmtrain's.

usage: sample_order.py [--write]: checks the file, or writes it. It needs megatron-core and PyTorch
(scripts/oracles.sh --megatron).
"""
import json
import logging
import struct
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from golden_file import finish, versions  # noqa: E402

# (documents, lengths below): one document; a few, some empty; many; very short ones; long ones.
SETS = [(1, 90), (10, 40), (300, 40), (700, 3), (12, 900)]
SEQ_LENS = [1, 4, 16, 61]
SPLITS = ["1", "98,2,0", "969, 30, 1", "1,1,1", "0.5,0.25,0.25", "90,10", "1,0,1"]
SEEDS = [1, 1234, 4294967295, 0]
PASSES = 12  # how many numbers of samples `requests` gives
WRAP = 60000  # token i of a set is i modulo this


class Tokenizer:
    """Ids that no set holds: nothing is padded or masked."""

    pad, eod, eos, vocab_size = -1, -2, -2, WRAP
    unique_identifiers = {"class": "none"}


def lcg_numbers(n, seed):
    """n integers of 31 bits of Knuth's MMIX generator."""
    for _ in range(n):
        seed = (6364136223846793005 * seed + 1442695040888963407) % 2**64
        yield seed >> 33


def lengths_of(number):
    """Lengths of set `number`; a set of one document has the largest."""
    documents, below = SETS[number]
    return [below - 1] if documents == 1 else [x % below for x in lcg_numbers(documents, number)]


def write_set(prefix, lengths):
    """One sequence a document, ids of two bytes."""
    tokens = np.arange(sum(lengths)) % WRAP
    tokens.astype(np.uint16).tofile(f"{prefix}.bin")
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) * 2
    n = len(lengths)
    Path(f"{prefix}.idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, n, n + 1) + np.array(lengths, np.int32).tobytes()
        + starts.astype(np.int64).tobytes() + np.arange(n + 1, dtype=np.int64).tobytes())


def requests(tokens, seq_len):
    """Numbers of samples around what decides: part of an epoch, whole ones, and in the last of several epochs the share
    below which it is shuffled by itself."""
    per = (tokens - 1) // seq_len
    numbers = [1, per // 2, per, per + 1]
    for epochs in (2, 3, 5):
        before = ((epochs - 1) * tokens - 1) // seq_len
        numbers += [before + int(0.8 * per) - 1, before + int(0.8 * per)]
    numbers += [(2 * tokens - 1) // seq_len + 1, 7 * per]
    assert len(numbers) == PASSES
    return [max(n, 1) for n in numbers]


def digest(numbers):
    """FNV-1a over whole numbers of 64 bits."""
    h = 14695981039346656037
    for number in numbers:
        h = ((h ^ int(number)) * 1099511628211) % 2**64
    return h


def part_of(dataset, sequences):
    """What the golden file says of one part."""
    samples = []
    for i in range(len(dataset)):
        item = dataset[i]
        samples.append(item["tokens"].tolist() + item["labels"].tolist()[-1:])
    return {"epochs": len(dataset.document_index) // sequences, "samples": len(dataset),
            "documents": digest(dataset.document_index), "places": digest(dataset.sample_index.reshape(-1)),
            "shuffle": digest(dataset.shuffle_index), "tokens": digest(t for sample in samples for t in sample),
            "first": samples[0][:4], "last": samples[-1][-4:]}


def case_of(prefix, number, seq_len, run):
    """One line of the file; the run chooses the numbers of samples, the split and the seed."""
    lengths = lengths_of(number)
    split, seed = SPLITS[run % len(SPLITS)], SEEDS[run % len(SEEDS)]
    config = {"random_seed": seed, "sequence_length": seq_len, "blend": ([prefix], None), "split": split,
              "tokenizer": Tokenizer(), "reset_position_ids": False, "reset_attention_mask": False,
              "eod_mask_loss": False, "create_attention_mask": False}
    asked = []
    for i, bounds in enumerate(GPTDatasetConfig(**config).split_matrix):
        begin, end = (round(b * len(lengths)) for b in bounds) if bounds else (0, 0)
        tokens = sum(lengths[begin:end])
        asked.append(requests(tokens, seq_len)[(run + 5 * i) % PASSES] if tokens > seq_len else 0)
    # A part too small for one sample is refused by llmtrain; Megatron is not asked for it.
    with tempfile.TemporaryDirectory() as cache:
        settings = GPTDatasetConfig(**config, path_to_cache=cache)
        settings.split_matrix = [m if n else None for m, n in zip(settings.split_matrix, asked)]
        built = BlendedMegatronDatasetBuilder(GPTDataset, asked, lambda: True, settings).build()
        parts = [part_of(d, len(d.indices)) | {"asked": n} if n else None for d, n in zip(built, asked)]
    return {"set": number, "seq_len": seq_len, "split": split, "seed": seed, "parts": parts}


def main():
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(len(SETS)):
            prefix = f"{folder}/set{number}"
            write_set(prefix, lengths_of(number))
            for k, seq_len in enumerate(SEQ_LENS):
                # Every number of samples for one length of the set, and some for the others.
                for run in range(number + k, number + k + (PASSES if k == number % len(SEQ_LENS) else 4)):
                    case = case_of(prefix, number, seq_len, run)
                    if any(case["parts"]):
                        lines.append("  " + json.dumps(case, separators=(",", ":")))
    sets = [{"documents": n, "below": below} for n, below in SETS]
    text = (f'{{\n "made_by": "tests/golden/sample_order.py with {versions()}",\n "wrap": {WRAP},\n'
            f' "sets": {json.dumps(sets)},\n "cases": [\n' + ",\n".join(lines) + "\n ]\n}\n")
    finish(Path(__file__).with_suffix(".json"), text)


if __name__ == "__main__":
    main()
