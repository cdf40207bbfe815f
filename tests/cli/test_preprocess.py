#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# llmtrain preprocess as a user runs it: files, exit codes, a full disk, a pipe as input, bounded memory, signals.
import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import sys
import tempfile

binary = os.path.abspath(sys.argv[1])
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def preprocess(folder, *options, prefix="out", tokenizer="bytes", **settings):
    command = [binary, "preprocess", *options, "--output-prefix", str(folder / prefix), "--tokenizer", tokenizer]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **settings)


def read_index(path):
    data = path.read_bytes()
    check(data[:9] == b"MMIDIDX\0\0", f"{path}: magic")
    version, code, sequences, bounds = struct.unpack_from("<QBQQ", data, 9)
    check((version, code) == (1, 8), f"{path}: version and token type")
    lengths = struct.unpack_from(f"<{sequences}i", data, 34)
    offsets = struct.unpack_from(f"<{sequences}q", data, 34 + 4 * sequences)
    documents = struct.unpack_from(f"<{bounds}q", data, 34 + 12 * sequences)
    check(len(data) == 34 + 12 * sequences + 8 * bounds, f"{path}: size")
    return lengths, offsets, documents


def test_files(folder):
    texts = ["first", "", "zwölf \u2028 Boxkämpfer", "a" * 70000]
    lines = "".join(json.dumps({"id": i, "text": t}, ensure_ascii=bool(i % 2)) + "\n" for i, t in enumerate(texts))
    (folder / "in.jsonl").write_text(lines, encoding="utf-8")
    result = preprocess(folder, "--input", str(folder / "in.jsonl"), "--append-eod")
    check(result.returncode == 0, f"files: exit code {result.returncode}: {result.stderr}")
    check("4 documents (1 empty)" in result.stdout, f"files: summary {result.stdout!r}")
    lengths, offsets, documents = read_index(folder / "out_text_document.idx")
    raw = (folder / "out_text_document.bin").read_bytes()
    tokens = struct.unpack(f"<{len(raw) // 2}H", raw)
    expected = [list(t.encode()) + [256] for t in texts if t]
    check(list(lengths) == [len(e) for e in expected], "files: lengths")
    check(list(offsets) == [2 * sum(lengths[:i]) for i in range(len(lengths))], "files: offsets")
    check(documents == (0, 1, 1, 2, 3), "files: documents")
    check(list(tokens) == sum(expected, []), "files: tokens")
    sidecar = json.loads((folder / "out_text_document.json").read_text())
    check(sidecar["tokens"] == len(tokens) and sidecar["tokenizer"] == "bytes", "files: sidecar")

    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    preprocess(folder, "--input", str(folder / "in.jsonl"), "--append-eod")
    check(before == {p.name: p.read_bytes() for p in folder.iterdir()}, "files: a second run gives the same bytes")


def test_exit_codes(folder):
    good = folder / "good.jsonl"
    good.write_text('{"text":"a"}\n')
    bad = folder / "bad.jsonl"
    bad.write_bytes(b'{"text":"a"}\n{"text":"\xff"}\n')
    for code, part, result in [
        (64, "--input", preprocess(folder)),
        (64, "bogus", preprocess(folder, "--bogus", "--input", str(good))),
        (65, "bad.jsonl:2: byte 22", preprocess(folder, "--input", str(good), str(bad))),
        (66, "none.jsonl", preprocess(folder, "--input", str(folder / "none.jsonl"))),
        (73, "missing/out", preprocess(folder, "--input", str(good), prefix="missing/out")),
        (66, "a.model", preprocess(folder, "--input", str(good), tokenizer="a.model")),
        (78, "specail", preprocess(folder, "--input", str(good), tokenizer="{file: a.model, specail: {}}")),
    ]:
        check(result.returncode == code, f"exit codes: {result.args[1:]}: {result.returncode}, not {code}")
        check(part in result.stderr, f"exit codes: {result.args[1:]}: {part!r} is not in {result.stderr!r}")
        check(result.stderr.count("\n") == 1, f"exit codes: more than one line: {result.stderr!r}")
    check(sorted(p.name for p in folder.iterdir()) == ["bad.jsonl", "good.jsonl"], "exit codes: files were left")
    shown = subprocess.run([binary, "preprocess", "--help"], capture_output=True, text=True)
    check(shown.returncode == 0 and "--max-line-bytes" in shown.stdout, "exit codes: --help")


def test_trained_tokenizer(folder):
    """A tokenizer is trained, used by its name, and refuses what does not go with it."""
    text = "the theory of the thing is that they thought " * 20
    (folder / "in.jsonl").write_text("".join(json.dumps({"text": text[i:]}) + "\n" for i in range(50)))
    command = [binary, "preprocess", "--input", folder / "in.jsonl", "--output-prefix", folder / "t"]
    result = subprocess.run([*command, "--train-tokenizer", "270", "--eod", "<e>"], capture_output=True, text=True)
    check(result.returncode == 0 and "270 ids, 13 merges" in result.stdout, f"training: {result}")
    model = json.loads((folder / "t_tokenizer.json").read_text())
    check(model["model"]["merges"][:2] == [["t", "h"], ["\u0120", "th"]], f"training: {model['model']['merges'][:2]}")
    check([a["content"] for a in model["added_tokens"]] == ["<e>"], "training: the end of document")
    used = preprocess(folder, "--input", str(folder / "in.jsonl"), "--append-eod", "--eod", "<e>",
                      tokenizer=str(folder / "t_tokenizer.json"))
    tokens = (folder / "out_text_document.bin").stat().st_size // 2
    sidecar = json.loads((folder / "out_text_document.json").read_text())
    check(used.returncode == 0 and sidecar["eod"] == 0 and sidecar["vocab"] == 270, f"trained tokenizer: {used}")
    check(tokens < 0.6 * sum(len(text) - i for i in range(50)), f"trained tokenizer: {tokens} tokens")
    for code, part, more in [(64, "--append-eod", ["--train-tokenizer", "300", "--append-eod"]),
                             (64, "--pattern", ["--tokenizer", "bytes", "--pattern", "llama3"]),
                             (78, "choose from 257", ["--train-tokenizer", "256"]),
                             (78, "take llama3", ["--train-tokenizer", "300", "--pattern", "cl100k"])]:
        result = subprocess.run([*command, *more], capture_output=True, text=True)
        check(result.returncode == code and part in result.stderr, f"training with {more}: {result}")


def test_full_disk(folder):
    (folder / "in.jsonl").write_text('{"text":"%s"}\n' % ("x" * 1000) * 5000)

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    result = preprocess(folder, "--input", str(folder / "in.jsonl"), preexec_fn=limit, restore_signals=False)
    check(result.returncode == 74 and "out_text_document.bin" in result.stderr, f"full disk: {result}")
    check([p.name for p in folder.iterdir()] == ["in.jsonl"], "full disk: files were left")


def test_pipe_and_memory(folder):
    """100 MB through a pipe in less memory than that."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    command = [binary, "preprocess", "--input", pipe, "--output-prefix", folder / "out", "--tokenizer", "bytes"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    line = b'{"text":"%s"}\n' % (b"y" * 9987)  # 10,000 bytes
    with open(pipe, "wb") as out:
        for _ in range(100):
            out.write(line * 100)
    _, status, usage = os.wait4(child.pid, 0)
    check(os.waitstatus_to_exitcode(status) == 0, f"pipe: exit code {os.waitstatus_to_exitcode(status)}")
    check((folder / "out_text_document.bin").stat().st_size == 2 * 10000 * 9987, "pipe: size")
    check(usage.ru_maxrss < 90_000, f"pipe: {usage.ru_maxrss} KB of memory")


def test_signals(folder):
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    command = [binary, "preprocess", "--input", pipe, "--output-prefix", folder / "out", "--tokenizer", "bytes"]
    for number in [signal.SIGINT, signal.SIGTERM]:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        with open(pipe, "wb") as out:  # opens only once the child reads
            out.write(b'{"text":"a"}\n')
            out.flush()
            child.send_signal(number)
        check(child.wait(60) == -number, f"signals: {number!r} gave {child.returncode}")
        check([p.name for p in folder.iterdir()] == ["pipe"], f"signals: files were left after {number!r}")


for test in [test_files, test_exit_codes, test_trained_tokenizer, test_full_disk, test_pipe_and_memory, test_signals]:
    with tempfile.TemporaryDirectory() as name:
        test(pathlib.Path(name))
print("failures:", len(failures))
sys.exit(1 if failures else 0)
