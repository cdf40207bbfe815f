#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tokens to train on where there is no text: PREFIX.bin and PREFIX.idx, as Megatron names and lays them out.

usage: random_tokens.py PREFIX --vocab V --tokens N [--document N] [--chain]
Uniform over the vocabulary; with --chain each token is most often a fixed function of the one before, so that a model
can learn something.
"""
import argparse
import random
import struct
import sys
from array import array
from pathlib import Path


def make_tokens(vocab, count, chain):
    source = random.Random(1)
    tokens = source.choices(range(vocab), k=count)
    for i in range(1, count if chain else 0):
        if source.random() < 0.75:
            tokens[i] = (tokens[i - 1] * 5 + 17) % vocab
    return tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("prefix", type=Path)
    parser.add_argument("--vocab", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--document", type=int, default=4096, help="tokens of each")
    parser.add_argument("--chain", action="store_true")
    arguments = parser.parse_args()

    wide = arguments.vocab > 65536
    width, code = (4, 4) if wide else (2, 8)  # the format's codes of int32 and uint16
    tokens = make_tokens(arguments.vocab, arguments.tokens, arguments.chain)
    each = arguments.document
    sizes = [min(each, len(tokens) - begin) for begin in range(0, len(tokens), each)]
    starts = [each * i * width for i in range(len(sizes))]
    arguments.prefix.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{arguments.prefix}.bin", "wb") as data:
        array("i" if wide else "H", tokens).tofile(data)
    with open(f"{arguments.prefix}.idx", "wb") as index:
        index.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(sizes), len(sizes) + 1))
        array("i", sizes).tofile(index)
        array("q", starts).tofile(index)
        array("q", range(len(sizes) + 1)).tofile(index)
    return 0


if __name__ == "__main__":
    sys.exit(main())
