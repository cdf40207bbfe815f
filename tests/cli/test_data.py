#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 2
# What the data keys do to a run: data.mask_eod and data.mask_prompt on any cut of the batch, and several validation
# sets, each by its name; and data files that are cut while they are read.
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, Job, check, checkpoints, finish, metrics, prepare, run  # noqa: E402


def losses(name):
    return [line["loss"] for line in metrics(name)]


def difference(name, other):
    pairs = [(a, b) for one, two in zip(metrics(name), metrics(other))
             for a, b in ((one["loss"], two["loss"]), (one["grad_norm"], two["grad_norm"]))]
    return max(abs(a - b) / b for a, b in pairs)


def masked():
    short = ("data.mask_eod=true", "run.steps=6", "data.eval_every=3")
    run(1, "whole-batch", *short, "schedule.micro_batch=8")
    run(1, "one-by-one", *short, "schedule.micro_batch=1")
    run(2, "two-ranks", *short, "schedule.micro_batch=2")
    run(1, "unmasked", "run.steps=6", "data.eval_every=3", "schedule.micro_batch=8")
    # Bound: fp32 loss curves of layouts, 1e-5. Micro-batches hold different numbers of masked tokens, so dividing by
    # their own counts would differ by percents.
    for name in ("one-by-one", "two-ranks"):
        worst = difference(name, "whole-batch")
        check(worst <= 1e-5, f"{name}: loss and gradient norm as of the whole batch ({worst:.1e})")
    apart = difference("unmasked", "whole-batch")
    check(apart > 1e-4, f"the masked targets count without data.mask_eod ({apart:.1e})")


def prompts():
    """Prompts without loss, on several layouts: what is left is the same, and not what all tokens give."""
    lines = [json.loads(line)["text"] for line in open("work/text.jsonl")]
    Path("work/prompts.jsonl").write_text("".join(
        json.dumps({"question": text[:5 + 7 * i % 90], "text": text[5 + 7 * i % 90:]}) + "\n"
        for i, text in enumerate(lines)))
    preprocess = [PROGRAM, "preprocess", "--input", "work/prompts.jsonl", "--tokenizer", "bytes", "--append-eod",
                  "--prompt-key", "question", "--output-prefix"]
    subprocess.run([*preprocess, "work/q"], check=True, stdin=subprocess.DEVNULL, capture_output=True)
    subprocess.run(["mpirun", "--oversubscribe", "-np", "3", *preprocess, "work/r"], check=True,
                   stdin=subprocess.DEVNULL, capture_output=True)
    for part in ("document.bin", "document.idx", "document_prompt.bin", "document_prompt.idx"):
        same = Path(f"work/q_text_{part}").read_bytes() == Path(f"work/r_text_{part}").read_bytes()
        check(same, f"three ranks write the {part} that one writes")
    short = ("data.train=[work/q_text_document]", "model.kv_heads=2", "run.steps=4", "data.eval_every=2",
             "data.mask_prompt=true")
    run(1, "prompts", *short, "schedule.micro_batch=8")
    for name, ranks, key in (("data", 2, "schedule.micro_batch=2"), ("tensor", 2, "parallel.tensor=2"),
                             ("pipeline", 2, "parallel.pipeline=2")):
        run(ranks, f"prompts-{name}", *short, key)
        worst = difference(f"prompts-{name}", "prompts")
        check(worst <= 1e-5, f"prompts: loss and gradient norm do not depend on the layout, {name} ({worst:.1e})")
    run(1, "prompts-all", *short[:-1], "schedule.micro_batch=8")
    apart = difference("prompts-all", "prompts")
    check(apart > 1e-4, f"prompts count without data.mask_prompt ({apart:.1e})")
    check([line["valid_loss"] for line in metrics("prompts") if "valid" in line] !=
          [line["valid_loss"] for line in metrics("prompts-all") if "valid" in line], "in an evaluation too")
    err = run(2, "prompts-none", "data.mask_prompt=true", code=66)
    check("text_text_document_prompt.idx" in err and "--prompt-key" in err, "a set without lengths of prompts: 66")


def documents():
    """Document masks and the order without an index, on two cuts of the batch; both change what is learned."""
    for name, key in (("masks", "data.document_mask=true"), ("shuffled", "data.order=shuffled")):
        short = (key, "run.steps=4", "data.eval_every=0")
        run(1, f"{name}-whole", *short, "schedule.micro_batch=8")
        run(2, f"{name}-two", *short, "schedule.micro_batch=2")
        worst = difference(f"{name}-two", f"{name}-whole")
        check(worst <= 1e-5, f"{name}: loss and gradient norm do not depend on the layout ({worst:.1e})")
    run(1, "neither", "run.steps=4", "data.eval_every=0", "schedule.micro_batch=8")
    for name in ("masks", "shuffled"):
        check(difference("neither", f"{name}-whole") > 1e-4, f"{name}: something else is learned")


def blends():
    """What a blend reads does not depend on the layout, nor on a stop in between."""
    sets = "data.train=[{prefix: work/text_text_document, weight: 0.7}, {prefix: work/b_text_document, weight: 0.3}]"
    short = (sets, "run.steps=6", "data.eval_every=3", "data.eval_batches=2")
    run(1, "blend-one", *short, "schedule.micro_batch=4")
    run(2, "blend-two", *short, "schedule.micro_batch=2")
    worst = difference("blend-two", "blend-one")
    check(worst <= 1e-5, f"a blend on two ranks trains what one trains ({worst:.1e})")
    run(2, "blend-stopped", *short, "schedule.micro_batch=2", "run.stop_after=3")
    run(2, "blend-stopped", *short, "schedule.micro_batch=2")
    check(losses("blend-stopped") == losses("blend-two"), "a stopped blend goes on where it was")


def valid_sets():
    for name in ("b", "c"):
        text = "".join('{"text": "%s"}\n' % (f"set {name} number {i} " * 9) for i in range(40))
        Path(f"work/{name}.jsonl").write_text(text)
        subprocess.run([PROGRAM, "preprocess", "--input", f"work/{name}.jsonl", "--output-prefix", f"work/{name}",
                        "--tokenizer", "bytes"], check=True, stdin=subprocess.DEVNULL, capture_output=True)
    short = ("run.steps=6", "data.eval_every=3")
    b, c = "b_text_document", "c_text_document"
    run(2, "both", *short, f"data.valid=[work/{b}, work/{c}]")
    run(2, "second", *short, f"data.valid=[work/{c}]")
    both, second = metrics("both"), metrics("second")
    evaluated = [line for line in both if "valid" in line]
    check([line["step"] for line in evaluated] == [3, 6], "evaluated when it is due")
    check(all(list(line["valid"]) == [b, c] for line in evaluated), "each set by its name, in the deck's order")
    check(all(line["valid_loss"] == line["valid"][b] != line["valid"][c] for line in evaluated),
          "valid_loss is the first set's")
    check([line["valid"][c] for line in evaluated] == [line["valid"][c] for line in second if "valid" in line],
          "a set's loss does not depend on the others")
    check(losses("both") == losses("second"), "evaluation changes nothing in training")


def cut_in_use():
    """Neither a crash nor other numbers: the file is named, and once it is whole again the run goes on."""
    for end in ("bin", "idx"):
        name = f"cut-{end}"
        for part in ("bin", "idx"):
            shutil.copy(f"work/text_text_document.{part}", f"work/{name}.{part}")
        long = (f"data.train=[work/{name}]", "run.steps=20000", "checkpoint.every=2", "data.eval_every=0")
        job = Job(name, *long)
        job.wait_for_step(4)
        os.truncate(f"work/{name}.{end}", os.path.getsize(f"work/{name}.{end}") // 2)
        _, err = job.end(65)
        check(f"work/{name}.{end}" in err and "when it was opened" in err, f"a .{end} cut in use: 65 names the file")
        check(bool(checkpoints(name)), f"a .{end} cut in use: what was saved is there")
        shutil.copy(f"work/text_text_document.{end}", f"work/{name}.{end}")
        after = int(checkpoints(name)[-1].split("-")[1]) + 2
        run(2, name, *long, f"run.stop_after={after}")
        check(len(metrics(name)) == after, f"a .{end} cut in use: it goes on when the file is whole again")


prepare()
masked()
prompts()
documents()
valid_sets()
blends()
cut_in_use()
finish()
