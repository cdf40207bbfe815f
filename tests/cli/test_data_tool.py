#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# llmtrain data and preprocess under mpirun, as a user runs them: the same files for any number of ranks, errors once,
# nothing left; merge, split, verify, info, dump, at.
import gzip
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

binary = os.path.abspath(sys.argv[1])
mpi = {k: "1" for k in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_mpi_yield_when_idle",
                        "OMPI_MCA_rmaps_base_oversubscribe")}
environment = dict(os.environ, OMPI_MCA_hwloc_base_binding_policy="none", **mpi)
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def llmtrain(*arguments, ranks=0):
    start = ["mpirun", "-np", str(ranks)] if ranks else []
    return subprocess.run([*start, binary, *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          env=environment)


def refused(what, code, part, *arguments, ranks=0):
    result = llmtrain(*arguments, ranks=ranks)
    check(result.returncode == code, f"{what}: exit code {result.returncode}, not {code}: {result.stderr}")
    check(result.stderr.count(part) == 1, f"{what}: {part!r} is not once in {result.stderr!r}")


def contents(prefix):
    return [Path(f"{prefix}.{end}").read_bytes() for end in ("bin", "idx", "json")]


def texts_of(count):
    numbers = random.Random(5)
    return ["" if i % 37 == 5 else f"{i} " * numbers.randrange(1, 300) for i in range(count)]


def write_lines(path, texts):
    path.write_text("".join(json.dumps({"text": t, "id": i}) + "\n" for i, t in enumerate(texts)))


def ranks_agree():
    """Two plain files and a packed one: serial, and on two and three ranks."""
    texts = texts_of(3000)
    write_lines(Path("a.jsonl"), texts[:700])
    write_lines(Path("b.jsonl"), texts[700:2500])
    lines = "".join(json.dumps({"text": t}) + "\n" for t in texts[2500:])
    Path("c.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    options = ("--input", "[abc].jsonl*", "--tokenizer", "bytes", "--append-eod", "--threads", 1)
    for ranks in (0, 1, 2, 3):
        result = llmtrain("preprocess", *options, "--output-prefix", f"r{ranks}", ranks=ranks)
        check(result.returncode == 0, f"{ranks} ranks: {result.stderr}")
        check(result.stdout.count("3000 documents") == 1, f"{ranks} ranks: summary {result.stdout!r}")
    expected = contents("r0_text_document")
    tokens = struct.unpack(f"<{len(expected[0]) // 2}H", expected[0])
    check(list(tokens) == [b for t in texts if t for b in [*t.encode(), 256]], "tokens in the order of the inputs")
    for ranks in (1, 2, 3):
        check(contents(f"r{ranks}_text_document") == expected, f"{ranks} ranks write the serial run's bytes")
    check(not list(Path(".").glob("*.tmp.*")), "no temporary file is left")


def errors_under_mpi():
    texts = texts_of(2000)
    write_lines(Path("good.jsonl"), texts)
    lines = Path("good.jsonl").read_text().splitlines(keepends=True)
    lines[1700] = '{"text": 5}\n'
    Path("bad.jsonl").write_text("".join(lines))
    where = f"bad.jsonl:1701: byte {sum(map(len, lines[:1700])) + 9}: key 'text' is not a string"
    before = sorted(p.name for p in Path(".").iterdir())
    for ranks in (0, 2):
        options = ("preprocess", "--input", "good.jsonl", "bad.jsonl", "--tokenizer", "bytes", "--output-prefix", "bad")
        refused(f"a bad line, {ranks} ranks", 65, where, *options, ranks=ranks)
    refused("a missing file", 66, "none.jsonl", "preprocess", "--input", "none.jsonl", "--tokenizer", "bytes",
            "--output-prefix", "bad", ranks=2)
    refused("no folder", 73, "no/out", "preprocess", "--input", "good.jsonl", "--tokenizer", "bytes",
            "--output-prefix", "no/out", ranks=2)
    check(sorted(p.name for p in Path(".").iterdir()) == before, "a failure leaves nothing")


def merge_and_split():
    one, two = "r0_text_document", "s_text_document"
    write_lines(Path("s.jsonl"), ["x", "", "yy"])
    llmtrain("preprocess", "--input", "s.jsonl", "--tokenizer", "bytes", "--append-eod", "--output-prefix", "s")
    write_lines(Path("both.jsonl"), texts_of(3000) + ["x", "", "yy"])
    llmtrain("preprocess", "--input", "both.jsonl", "--tokenizer", "bytes", "--append-eod", "--output-prefix", "both")
    result = llmtrain("data", "merge", one, two, "--output", "merged")
    check(result.returncode == 0, f"merge: {result.stderr}")
    check(contents("merged")[:2] == contents("both_text_document")[:2], "merge gives the set of all documents (B36)")
    check(llmtrain("data", "verify", "merged").returncode == 0, "a merged set is sound, with its sidecar")
    result = llmtrain("data", "split", "merged", "--output", "part", "--shares", "70,30,0")
    check(result.returncode == 0 and not Path("part_test.idx").exists(), f"split: {result.stderr}")
    llmtrain("data", "merge", "part_train", "part_valid", "--output", "again")
    check(contents("again")[:2] == contents("merged")[:2], "the parts make the whole")
    refused("merge without output", 64, "--output is missing", "data", "merge", one)
    refused("merge into itself", 64, "cannot be the output", "data", "merge", one, two, "--output", one)
    refused("an option of another action", 64, "--vocab does not belong", "data", "info", one, "--vocab", "5")
    refused("an unknown action", 64, "unknown action 'join'", "data", "join", one)


def look():  # B42
    result = llmtrain("data", "info", "s_text_document", "--seq-len", 2, "--samples", 5)
    for part in ("documents   3 (1 empty)", "tokens      5 as uint16", "documents end with 256",
                 "2 of 2 tokens in one pass, 0 tokens left over",
                 "for 5 samples: 3 passes, which give 7"):
        check(part in result.stdout, f"info: {part!r} is not in {result.stdout!r}")
    result = llmtrain("data", "info", "s_text_document", "--seq-len", 3)
    check("1 of 3 tokens in one pass, 1 tokens left over" in result.stdout, f"info of 3: {result.stdout!r}")
    result = llmtrain("data", "dump", "s_text_document", "--tokenizer", "bytes")
    check(result.stdout == 'document 0, sequence 0: 2 tokens\n  120 256\n  "x"\ndocument 1: empty\n'
          'document 2, sequence 1: 3 tokens\n  121 121 256\n  "yy"\n', f"dump: {result.stdout!r}")
    refused("a document that is not there", 64, "numbered from 0", "data", "dump", "s_text_document", "--document", 3)


def verify_finds():
    write_lines(Path("v.jsonl"), ["x", "", "yyyy", "a b"])
    llmtrain("preprocess", "--input", "v.jsonl", "--tokenizer", "bytes", "--output-prefix", "v")
    prefix = "v_text_document"
    result = llmtrain("data", "verify", prefix)
    for part in ("sound; 4 documents, 8 tokens, largest id 121", "empty       1: document 1",
                 "one token   1: document 0", "one id      1: document 2"):
        check(part in result.stdout, f"verify: {part!r} is not in {result.stdout!r}")
    refused("an id beyond the vocabulary", 65, "document 0 (sequence 0), token 0 has id 120", "data", "verify", prefix,
            "--vocab", 100)
    index = bytearray(Path(f"{prefix}.idx").read_bytes())
    for name, at, value in (("magic", 0, b"X"), ("version", 9, b"\x02"), ("type", 17, b"\x03"),
                            ("sequences", 18, b"\x09"), ("documents", 26, b"\x00"), ("length", 34, b"\xff" * 4),
                            ("offset", 50, b"\x01"), ("last document", len(index) - 8, b"\x02")):
        Path(f"{prefix}.idx").write_bytes(index[:at] + value + index[at + len(value):])
        refused(f"a wrong {name}", 65, f"{prefix}.idx: byte", "data", "verify", prefix)
    Path(f"{prefix}.idx").write_bytes(index)
    os.truncate(f"{prefix}.bin", 10)
    refused("a cut .bin", 65, "the .bin file, which has 10 bytes", "data", "verify", prefix)
    refused("no such set", 66, "none.idx", "data", "verify", "none")


def at_step():
    Path("deck.yaml").write_text(
        "run: {steps: 20}\nmodel: {layers: 1, hidden: 16, heads: 2, kv_heads: 2, ffn: 32, seq_len: 8}\n"
        "schedule: {micro_batch: 2, global_batch: 4}\nprecision: {compute: fp32}\n"
        "data: {train: [{prefix: r0_text_document, weight: 1}, {prefix: both_text_document, weight: 3}], "
        "split: '100,0,0'}\n")
    result = llmtrain("data", "at", "deck.yaml", "--step", 3)
    check(result.returncode == 0 and result.stdout.startswith("step 3: samples 8 to 11 of 80 "), f"at: {result}")
    check(result.stdout.count("\nsample ") == 4, f"at: samples of the step: {result.stdout!r}")
    check(result.stdout.count("both_text_document: ") >= 3 and "r0_text_document: " in result.stdout,
          "at: the blend's shares")
    refused("no step", 64, "--step N is needed", "data", "at", "deck.yaml")


with tempfile.TemporaryDirectory() as name:
    os.chdir(name)
    for test in (ranks_agree, errors_under_mpi, merge_and_split, look, verify_finds, at_step):
        test()
    os.chdir("/")
print("failures:", len(failures))
sys.exit(1 if failures else 0)
