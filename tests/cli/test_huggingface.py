#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ranks: 4
# `llmtrain checkpoint export`, `import` and `consolidate`: round trips, files as others write them, runs that start
# from an import, mistakes.
import json
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
import safetensors  # noqa: E402
from cli import PROGRAM, WORK, check, finish, metrics, prepare, run  # noqa: E402

GPT = ("model.family=gpt", "model.tied=true", "model.kv_heads=6", "model.vocab=263", "parallel.tensor=2")
QWEN = ("model.qkv_bias=true", "model.tied=true", "model.rope={theta: 1e4, scaling: {factor: 4}}")
WEIGHTS = "model.safetensors"


def llmtrain(*arguments, code=0):
    """Standard output, or standard error of a refusal."""
    result = subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            timeout=120)
    if result.returncode != code:
        print(result.stdout[-1000:] + result.stderr[-1000:])
    check(result.returncode == code, f"{' '.join(map(str, arguments))[:90]}: exit code {code} ({result.returncode})")
    return result.stdout if code == 0 else result.stderr


def checkpoint(*arguments, code=0):
    return llmtrain("checkpoint", *arguments, code=code)


def logits_of(folder):
    llmtrain("generate", folder, "--prompt", "the old ship", "--logits", WORK / "logits.h5", "--threads", 1)
    return (WORK / "logits.h5").read_bytes()


def export_of(name):
    """The exported folder in fp32 of a run, and its weights."""
    folder = WORK / f"{name}-hf"
    out = checkpoint("export", f"work/{name}/checkpoints", folder, "--dtype", "fp32")
    check(str(folder) in out and "fp32" in out, "the export says what it wrote")
    tensors, metadata = safetensors.read(folder / WEIGHTS)
    check(metadata == {"format": "pt"}, "metadata that transformers asks for")
    check((folder / WEIGHTS).read_bytes().index(b'{"') == 8 and (folder / WEIGHTS).read_bytes()[0] % 8 == 0,
          "the data is aligned")
    return folder, tensors


def round_trip(name, model_type, tensors_expected):
    folder, tensors = export_of(name)
    config = json.loads((folder / "config.json").read_text())
    check(config["model_type"] == model_type and config["eos_token_id"] == 256, f"config.json of {model_type}")
    check(json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 256, "generation_config.json")
    check(len(tensors) == tensors_expected, f"{tensors_expected} tensors ({len(tensors)})")
    back = WORK / f"{name}-back"
    checkpoint("import", folder, back, "precision.compute=fp32")
    check("good" in checkpoint("verify", back), "the import is a good checkpoint")
    checkpoint("export", back, WORK / f"{name}-again", "--dtype", "fp32")
    check((WORK / f"{name}-again" / WEIGHTS).read_bytes() == (folder / WEIGHTS).read_bytes(), "import is bit-equal")
    check(logits_of(back) == logits_of(f"work/{name}/checkpoints"), "and has the same logits")
    checkpoint("export", f"work/{name}/checkpoints", WORK / f"{name}-shards", "--dtype", "fp32", "--shard-gb", "4e-5")
    shards = sorted((WORK / f"{name}-shards").glob("model-*.safetensors"))
    parts = {key: value for shard in shards for key, value in safetensors.read(shard)[0].items()}
    check(len(shards) > 3 and parts == tensors, f"{len(shards)} shards hold the same")
    checkpoint("consolidate", f"work/{name}/checkpoints", WORK / f"{name}.safetensors", "--dtype", "fp16")
    whole, metadata = safetensors.read(WORK / f"{name}.safetensors")
    check({dtype for dtype, _, _ in whole.values()} == {"F16"} and "layers: 2" in metadata["llmtrain.deck"],
          "one file of 16-bit weights with its deck")
    return folder, tensors


def changed(folder, name, tensors, config=None):
    """A copy of a folder with other weights or another config.json."""
    copy = WORK / name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    safetensors.write(copy / WEIGHTS, tensors)
    if config is not None:
        (copy / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | config))
    return copy


def old_gpt_files(folder, tensors):
    """As the first files of GPT-2: no prefix, masks among the weights, the tied head written too."""
    check(tensors["transformer.wte.weight"][1] == [263, 48], "two tensor ranks' padding of the vocabulary is not there")
    old = {key.removeprefix("transformer."): value for key, value in tensors.items()}
    for layer in range(2):
        old[f"h.{layer}.attn.bias"] = ("U8", [1, 1, 32, 32], bytes(32 * 32))
        old[f"h.{layer}.attn.masked_bias"] = ("F32", [], bytes(4))
    old["lm_head.weight"] = old["wte.weight"]
    checkpoint("import", changed(folder, "old", old), WORK / "old-back", "precision.compute=fp32")
    checkpoint("export", WORK / "old-back", WORK / "old-again", "--dtype", "fp32")
    check((WORK / "old-again" / WEIGHTS).read_bytes() == (folder / WEIGHTS).read_bytes(), "old files import alike")
    dtype, shape, data = old["wte.weight"]
    old["lm_head.weight"] = (dtype, shape, bytes(len(data)))
    error = checkpoint("import", changed(folder, "other-head", old), WORK / "none", code=65)
    check("lm_head.weight" in error, "a tied head that differs is named")
    twice = tensors | {"wte.weight": tensors["transformer.wte.weight"]}
    error = checkpoint("import", changed(folder, "twice", twice), WORK / "none", code=65)
    check("both transformer.wte.weight and wte.weight" in error, "a tensor under both names is refused")


def every_layout():
    """The first state of a model saved in several layouts, all axes of them at once too: the same tensors and the same
    export, with the true vocabulary; and four tensor ranks start from it as one rank does."""
    model = ("model.heads=4", "model.kv_heads=4", "model.tied=true", "data.eval_every=0")
    every_axis = ("parallel.tensor=2", "parallel.pipeline=2", "parallel.zero=3", "parallel.persistence=0")
    for name, ranks, options in (("one", 1, ()), ("two", 2, ("parallel.tensor=2",)),
                                 ("four", 4, ("parallel.tensor=4",)), ("all", 8, every_axis)):
        run(ranks, name, *model, *options, "run.steps=0", "optimizer.warmup_steps=0")
        checkpoint("diff", "work/one/checkpoints", f"work/{name}/checkpoints")
        folder, tensors = export_of(name)
        check(tensors["model.embed_tokens.weight"][1] == [257, 48], f"{name}: 257 rows")
        check((folder / WEIGHTS).read_bytes() == (WORK / "one-hf" / WEIGHTS).read_bytes(), f"{name}: the same export")
    deck = (*model, "run.steps=4", "checkpoint.every=0")
    for name, ranks, options in (("from-one", 1, ()), ("from-four", 4, ("parallel.tensor=4",))):
        checkpoint("import", WORK / "four-hf", f"work/{name}/checkpoints", "--deck", "work/deck.yaml", *deck)
        run(ranks, name, *deck, *options)
    pairs = [(a["loss"], b["loss"]) for a, b in zip(metrics("from-one"), metrics("from-four"))]
    worst = max(abs(a - b) / a for a, b in pairs)
    check(len(pairs) == 4 and worst <= 1e-5, f"an import trains alike on 1 rank and on 4 tensor ranks ({worst:.1e})")


def start_from_import(folder):
    """A run goes on from the weights, with a deck of its own."""
    deck = ("run.steps=6", "data.eval_every=0", "checkpoint.every=0")
    checkpoint("import", folder, "work/tuned/checkpoints", "--deck", "work/deck.yaml", "run.dir=work/tuned", *deck)
    log = run(2, "tuned", *deck)
    check("resumed from" in log + (WORK / "tuned" / "log.txt").read_text(), "the run goes on from it")
    first = metrics("llama")
    tuned = metrics("tuned")
    check(len(tuned) == 6 and tuned[0]["step"] == 1, "from step 0")
    check(abs(tuned[0]["loss"] - first[-1]["loss"]) < 0.2 < first[0]["loss"] - tuned[0]["loss"],
          "with the loss that the weights had")
    error = checkpoint("import", folder, WORK / "none", "--deck", "work/deck.yaml", "model.ffn=90", code=84)
    check("model.ffn" in error and "96" in error and "90" in error, "another model is refused with what differs")
    error = checkpoint("import", folder, WORK / "none", "model.hidden=96", code=84)
    check("model.hidden" in error, "... on the command line too")


def mistakes(folder, tensors):
    name = "model.layers.1.mlp.up_proj.weight"
    dtype, shape, data = tensors[name]
    without = {key: value for key, value in tensors.items() if key != name}
    for what, weights, words in (
            ("missing", without, name),
            ("unknown", tensors | {"model.layers.2.mlp.up_proj.weight": tensors[name]}, "model.layers.2.mlp"),
            ("turned", tensors | {name: (dtype, shape[::-1], data)}, "has shape"),
            ("whole", tensors | {name: ("I32", shape, data)}, "is I32"),
            ("new", tensors | {name: ("Q7", shape, data)}, "Q7")):
        error = checkpoint("import", changed(folder, what, weights), WORK / "none", code=65)
        check(words in error and error.count("\n") == 1, f"... in one line that says {words}")
    large = bytearray(data)
    large[:4] = b"\x00\x00\x80\x47"  # 65536
    checkpoint("import", changed(folder, "large", tensors | {name: (dtype, shape, bytes(large))}), WORK / "large-back")
    error = checkpoint("export", WORK / "large-back", WORK / "none", "--dtype", "fp16", code=65)
    check(name in error and "65536" in error and not (WORK / "none").exists(), "fp16 refuses what overflows, by name")
    cut = changed(folder, "cut", tensors)
    (cut / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-1])
    for arguments, code, words in (
            (("import", cut, "work/none"), 65, "the file is cut"),
            (("import", changed(folder, "mistral", tensors, {"model_type": "mistral"}), "work/none"), 84, "mistral"),
            (("import", changed(folder, "bias", tensors, {"attention_bias": True}), "work/none"), 84, "attention_bias"),
            (("import", changed(folder, "heads", tensors, {"num_key_value_heads": 4}), "work/none"), 65, "kv_heads 4"),
            (("import", "work/nowhere", "work/none"), 66, "work/nowhere"),
            (("import", "work/text.jsonl", "work/none"), 66, "config.json"),
            (("import", folder, "work/llama/checkpoints"), 73, "holds the checkpoints of a run"),
            (("import", folder, "work/text.jsonl"), 73, "text.jsonl"),
            (("import", folder), 64, "name a folder"),
            (("import", folder, "work/none", "model.ffn"), 64, "model.ffn"),
            (("import", folder, "work/none", "run.steps=x"), 78, "run.steps"),
            (("export", "work/nowhere", "work/none"), 66, "work/nowhere"),
            (("export", "work/llama/checkpoints", folder), 73, "not an empty folder"),
            (("export", "work/llama/checkpoints", "work/text.jsonl/none"), 73, "work/text.jsonl/none"),
            (("export", "work/llama/checkpoints", "work/none", "--dtype", "fp8"), 64, "fp8"),
            (("export", "work/llama/checkpoints", "work/none", "--shard-gb", "0"), 64, "--shard-gb"),
            (("export", "work/llama/checkpoints", "work/none", "--tokenizer", "work/no"), 66, "--tokenizer"),
            (("export", "work/llama/checkpoints"), 64, "name a checkpoint"),
            (("consolidate", "work/llama/checkpoints", "work/llama.safetensors"), 73, "it exists"),
            (("consolidate", "work/llama/checkpoints", "work/none", "--dtype", "fp32"), 64, "fp32")):
        error = checkpoint(*arguments, code=code)
        check(words in error, f"... and says {words}")
    check(not list(WORK.glob("none*")) and not list(WORK.glob("*.tmp.*")), "refusals leave nothing")


def tokenizer_files(folder):
    """Bytes become a tokenizer.json, which goes along as a file or a folder, and comes back with an import."""
    names = ("tokenizer.json", "tokenizer_config.json")
    vocab = json.loads((folder / names[0]).read_text())["model"]["vocab"]
    check(sorted(vocab.values()) == list(range(257)) and vocab["a"] == 97 and vocab["\u0120"] == 32
          and vocab["\u0143"] == 0xad and vocab["<|endoftext|>"] == 256, "every byte has its id and its character")
    (WORK / "tokenizer").mkdir()
    for name in names:
        shutil.copy(folder / name, WORK / "tokenizer" / name)
    for number, path in enumerate((WORK / "tokenizer", WORK / "tokenizer" / names[0])):
        target = WORK / f"with-tokenizer-{number}"
        checkpoint("export", "work/llama/checkpoints", target, "--tokenizer", path)
        check(all((target / name).read_bytes() == (folder / name).read_bytes() for name in names), "its files go along")
        check(json.loads((target / "config.json").read_text())["eos_token_id"] == 256, "... and its end of document")
    (WORK / "pair").mkdir()
    (WORK / "pair" / "encoder.json").write_text(json.dumps(vocab))
    (WORK / "pair" / "vocab.bpe").write_text("#version: 0.2\n")
    checkpoint("export", "work/llama/checkpoints", WORK / "with-pair", "--tokenizer", WORK / "pair")
    check({"vocab.json", "merges.txt"} <= {path.name for path in (WORK / "with-pair").iterdir()}, "under today's names")
    checkpoint("export", "work/llama/checkpoints", WORK / "without", "--tokenizer", "none")
    check(not (WORK / "without" / names[0]).exists(), "none leaves it out")
    check(f"tokenizer: {folder}" in checkpoint("info", "work/llama-back", "--deck").replace('"', ""),
          "an import takes the folder's tokenizer")


def main():
    prepare()
    for name, ranks, options in (("llama", 1, ()), ("gpt", 2, GPT), ("qwen", 1, QWEN)):
        run(ranks, name, "run.steps=12", "data.eval_every=0", "checkpoint.every=12", *options)
    round_trip("qwen", "qwen2", 26)
    old_gpt_files(*round_trip("gpt", "gpt2", 28))
    folder, tensors = round_trip("llama", "llama", 21)
    start_from_import(folder)
    every_layout()
    mistakes(folder, tensors)
    tokenizer_files(folder)
    for action in ("export", "import", "consolidate"):
        check(action in checkpoint(action, "--help"), f"checkpoint {action} --help")
    finish()


main()
