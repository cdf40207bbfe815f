#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 3
# What a user can get wrong: one clear message that names the place, the documented exit code, and no file is lost.
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import DECK, PROGRAM, WORK, check, command, finish, metrics, prepare, run  # noqa: E402

OFTEN = DECK.replace("steps: 20", "steps: 4").replace("eval_every: 7", "eval_every: 2").replace("every: 8", "every: 2")


def alone(*overrides, **settings):
    """Exit code and standard error of the program without mpirun."""
    env = {**os.environ, **settings.pop("env", {})}
    done = subprocess.run([PROGRAM, "work/deck.yaml", *overrides], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=300, env=env, **settings)
    return done.returncode, done.stderr


def tree(folder):
    return {path: path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def refused(what, code, parts, *overrides, lines=1, **settings):
    """The program refuses with this code and a message of so many lines that holds the parts; no file changes."""
    before = tree(WORK)
    got, err = alone(*overrides, **settings)
    shown = err.splitlines()
    good = got == code and len(shown) == lines and all(part in err for part in parts)
    check(good, f"{what}: {code}, {lines} line(s) with {parts}" + ("" if good else f"\n      got {got}: {err}"))
    changed = [str(path) for path, content in before.items() if not path.is_file() or path.read_bytes() != content]
    check(not changed, f"{what}: no file is lost {changed or ''}")


def broken_data():
    idx, raw = (Path(f"work/text_text_document.{end}").read_bytes() for end in ("idx", "bin"))
    cases = [
        ("missing .idx", 66, None, raw, ".idx"),
        ("missing .bin", 66, idx, None, ".bin"),
        ("empty .idx", 65, b"", raw, ".idx"),
        ("empty .bin", 65, idx, b"", ".idx"),  # named by the index entry that it does not hold
        ("truncated .idx", 65, idx[:-5], raw, ".idx"),
        ("truncated header", 65, idx[:20], raw, ".idx"),
        ("truncated .bin", 65, idx, raw[:-2], ".idx"),
        ("foreign .idx", 65, b"PK\3\4" + bytes(range(200)), raw, ".idx"),
        ("text as .idx", 65, b'{"text": "hello"}\n' * 30, raw, ".idx"),
        ("unknown version", 65, idx[:9] + b"\7" + idx[10:], raw, ".idx"),
        ("unknown token type", 65, idx[:17] + b"\77" + idx[18:], raw, ".idx"),
        ("count too large", 65, idx[:18] + b"\xff" * 8 + idx[26:], raw, ".idx"),
    ]
    for what, code, index, tokens, part in cases:
        for end, content in (("idx", index), ("bin", tokens)):
            path = WORK / f"bad.{end}"
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
        refused(what, code, ["bad" + part], "run.dir=work/none", "data.train=[work/bad]")
        refused(what + " for evaluation", code, ["bad" + part], "run.dir=work/none", "data.valid=[work/bad]")
    check(not (WORK / "none").exists(), "a run that is refused makes no folder")


def wrong_decks():
    """In the folder of a run that is there: it stays as it was."""
    for what, part, override in (
            ("a wrong type", "run.steps: 'many' is not a number; it takes a whole number", "run.steps=many"),
            ("out of range", "optimizer.lr: '-1' is out of range", "optimizer.lr=-1"),
            ("an unknown value", "schedule.kind: unknown name 'zigzag'", "schedule.kind=zigzag"),
            ("an unknown key", "unknown key 'learing_rate' in 'optimizer'; did you mean", "optimizer.learing_rate=1"),
            ("heads that do not divide", "model.hidden 48 is not divisible by model.heads 5", "model.heads=5"),
            ("kv heads that do not divide", "model.heads 6 is not divisible by model.kv_heads 4", "model.kv_heads=4"),
            ("a batch that does not divide", "global_batch 8 is not divisible by schedule.micro_batch 3: global_batch",
             "schedule.micro_batch=3"),
            ("tensor ranks that do not divide", "model.heads 6 is not divisible by parallel.tensor 4",
             "parallel.tensor=4"),
            ("more stages than layers", "model.layers 2 is fewer than the 3 pipeline stages", "parallel.pipeline=3")):
        before = (WORK / "mine" / "log.txt").read_bytes()
        code, err = alone("run.dir=work/mine", override)
        check(code == 78 and part in err, f"{what}: 78, {part} ({code}: {err})")
        check((WORK / "mine" / "log.txt").read_bytes() == before, f"{what}: the log of the run stays")


def unusable_data():
    refused("id outside the vocabulary", 65, ["text_text_document", "256", "100"], "run.dir=work/none",
            "model.vocab=100")
    for end in ("idx", "bin"):
        shutil.copy(f"work/text_text_document.{end}", f"work/plain.{end}")  # without what preprocess noted of it
    refused("id outside the vocabulary, found while reading", 65, ["plain: sequence", "vocabulary is 100"],
            "run.dir=work/found", "model.vocab=100", "data.train=[work/plain]")
    sidecar = Path("work/text_text_document.json").read_text()
    for end in ("idx", "bin"):
        shutil.copy(f"work/text_text_document.{end}", f"work/other.{end}")
    (WORK / "other.json").write_text(sidecar.replace('"tokenizer": "bytes"', '"tokenizer": "other"'))
    refused("data of another tokenizer", 78, ["work/other", "tokenizer other"], "run.dir=work/none",
            "data.train=[work/other]")
    refused("shorter than a sample", 65, ["seq_len + 1 = 100001"], "run.dir=work/none", "model.seq_len=100000")
    refused("a set named twice", 78, ["names 'a' twice"], "run.dir=work/none", "data.valid=[a, a]")
    refused("an impossible split", 65, ["training part"], "run.dir=work/none", "data.split='0.0001,99,0'")


def folders():
    (WORK / "file").write_text("kept\n")
    refused("run folder below a file", 73, ["work/file"], "run.dir=work/file/run")
    refused("run folder that is a file", 73, ["work/file"], "run.dir=work/file")
    refused("checkpoints below a file", 73, ["work/file"], "run.dir=work/elsewhere", "checkpoint.dir=work/file/x")
    locked = WORK / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    user = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
    try:
        reaches = subprocess.run([PROGRAM, "--version"], stdout=subprocess.DEVNULL, **user).returncode == 0
    except PermissionError:
        reaches = False
    if reaches:
        refused("unwritable folder", 73, ["work/locked"], "run.dir=work/locked/run", **user)
    else:
        print("skip  unwritable folder: another user cannot start the program here")


def another_run():
    code, err = alone("run.dir=work/mine")
    check(code == 0, f"a run to stand in the way {err}")
    refused("folder of another run", 84, ["run.seed", "stored 1234", "now 5"], "run.dir=work/mine", "run.seed=5",
            "data.seed=1234", lines=3)
    refused("resume never", 73, ["run.overwrite"], "run.dir=work/mine", "checkpoint.resume=never")
    code, err = alone("run.dir=work/bare", "checkpoint.every=0")
    check(code == 0, f"a run without checkpoints {err}")
    refused("folder of another run without checkpoints", 73, ["another run"], "run.dir=work/bare", "checkpoint.every=0",
            "run.seed=5")


def damaged_shards():
    shutil.copytree("work/mine", "work/damaged")
    saves = Path("work/damaged/checkpoints")
    shard = saves / "step-00000004" / "shard-00000.h5"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 4
    shard.write_bytes(content)
    refused("damaged shard, named, and its tensor", 83, ["shard-00000.h5", "differs from its digest"],
            "run.dir=work/damaged", "checkpoint.resume=work/damaged/checkpoints/step-00000004",
            lines=2)  # the other one says that the key differs from the checkpoint's
    code, err = alone("run.dir=work/damaged")
    check(code == 0 and "step-00000004" in err, f"damaged shard: the step before is taken, with a warning {code} {err}")
    check(metrics("damaged") == metrics("mine"), "damaged shard: and the run ends as if nothing had been")
    shutil.copytree("work/mine", "work/lost")
    for path in Path("work/lost/checkpoints").glob("step-*/shard-00000.h5"):
        path.write_bytes(path.read_bytes()[:-100])
    refused("only damaged shards: no fresh start", 83, ["step-00000004", "step-00000002"], "run.dir=work/lost")
    shutil.copytree("work/mine", "work/flipped")
    for path in Path("work/flipped/checkpoints").glob("step-*/shard-00000.h5"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    refused("only flipped shards, found by the load: no fresh start", 83,
            ["starts over", "step-00000004", "step-00000002"], "run.dir=work/flipped", lines=2)


def worlds():
    got = subprocess.run(command(3, "none"), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                         timeout=300)
    said = got.stderr.count("global_batch 8 is not divisible by schedule.micro_batch x data = 2 x 3 = 6")
    check(got.returncode == 78 and said == 1, f"three ranks: 78, once ({got.returncode}, {said})")
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS"):
        refused(f"another MPI's launcher ({name})", 78, [name + "=4", "Open MPI"], "run.dir=work/none", env={name: "4"})


def environment():
    """What the environment holds changes no number."""
    nowhere = "/nowhere/at/all"
    for env in ({"LC_ALL": "de_DE.UTF-8"}, {"LC_ALL": "no_SUCH.locale"}, {"TMPDIR": nowhere},
                {"HDF5_USE_FILE_LOCKING": "FALSE"}, {"OMP_NUM_THREADS": "many"}, {"HOME": nowhere}):
        code, err = alone("run.dir=work/elsewhere", "run.overwrite=true", "checkpoint.resume=never", env=env)
        check(code == 0 and metrics("elsewhere") == metrics("mine"), f"{env} changes nothing {err}")
    run(2, "two")
    # The second is what helps where a container forbids ranks to read each other's memory.
    for env in ({"TMPDIR": nowhere}, {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"}):
        got = subprocess.run(command(2, "two-elsewhere", "run.overwrite=true", "checkpoint.resume=never"),
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                             env={**os.environ, **env})
        check(got.returncode == 0 and metrics("two-elsewhere") == metrics("two"),
              f"{env} changes nothing on two ranks {got.stderr}")


def closed_outputs():
    """A reader that leaves (as `head` does) or a full disk behind standard output does not stop a run."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed, open("/dev/full", "w") as full:
        for what, output in (("closed", closed), ("full", full)):
            done = subprocess.run([PROGRAM, "work/deck.yaml", f"run.dir=work/{what}"], stdin=subprocess.DEVNULL,
                                  stdout=output, stderr=subprocess.PIPE, text=True, timeout=300)
            check(done.returncode == 0 and metrics(what) == metrics("mine"), f"{what} output: the run ends well")
            said = done.stderr.count("cannot write to the standard output")
            check(said == 1, f"{what} output: one warning ({done.stderr})")
            check("step 4/4" in (WORK / what / "log.txt").read_text(), f"{what} output: log.txt has every line")


def divergence():
    """Weights that grow ten thousandfold a step overflow; then every update is skipped."""
    grows = ("optimizer.lr=100", "optimizer.weight_decay=100", "optimizer.schedule=constant",
             "optimizer.warmup_steps=0", "run.steps=40", "optimizer.max_skipped=3", "checkpoint.every=100",
             "data.eval_every=0")
    text = run(2, "grows", *grows, code=80)
    lines = metrics("grows")
    first = next(line["step"] for line in lines if line["skipped"] == 1)
    counts = [line["skipped"] for line in lines[first - 1:]]
    check(counts == [1, 2, 3, 4], f"each skip is counted, the fourth is the end ({counts})")
    for number in range(4):
        part = f"step {first + number}: update skipped"
        check(text.count(part) == 1, f"one warning for the skip at step {first + number}")
        line = next(line for line in text.splitlines() if part in line)
        check(re.search(r"not finite: gradients of \d+ tensors, [a-z0-9._]+ to [a-z0-9._]+, on [12] of 2 ranks, "
                        rf"first on rank [01]; `llmtrain data at DECK --step {first + number}`", line),
              f"... and where: {line}")
    check("more than optimizer.max_skipped 3" in text, "80 says why")
    check(not list((WORK / "grows").glob("checkpoints/step-*")), "what diverged is not saved")
    run(2, "grows16", *grows, "precision.compute=bf16", code=80)
    check([line["skipped"] for line in metrics("grows16")][-4:] == [1, 2, 3, 4], "bf16: skips are counted and end too")
    run(2, "again", *grows, f"run.stop_after={first + 1}")
    run(2, "again", *grows, code=80)
    check(metrics("again") == lines, "the count in a row goes on over a resume")


prepare(OFTEN)
broken_data()
unusable_data()
folders()
another_run()
wrong_decks()
damaged_shards()
worlds()
environment()
closed_outputs()
divergence()
finish()
