#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Decks from a DeepSpeed file and a 70B Megatron script: they are valid, say what is lacking, plan as they are, and
# train scaled down.
import json
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import PROGRAM, WORK, check, finish, metrics, prepare, run  # noqa: E402

ZERO3 = {
    "train_batch_size": 256, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto",
    "bf16": {"enabled": True}, "fp16": {"enabled": False, "loss_scale": 0},
    "zero_optimization": {
        "stage": 3, "overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": 1.6e7,
        "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": 2e9, "stage3_max_reuse_distance": 1e9, "sub_group_size": 1e9,
        "stage3_gather_16bit_weights_on_model_save": True, "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "stage3_prefetch_bukcet_size": 7},
    "activation_checkpointing": {"partition_activations": True, "cpu_checkpointing": False},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 20000, "warmup_num_steps": 500}},
    "gradient_clipping": 1.0, "steps_per_print": 10, "wall_clock_breakdown": False,
}

SBATCH = r"""#!/bin/bash
#SBATCH --job-name=llama3-70b --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:h100:8
#SBATCH --time=24:00:00

export CUDA_DEVICE_MAX_CONNECTIONS=1   # needed by tensor parallelism
touch executed-by-the-importer
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-1}
TP=8; PP=2
MASTER_ADDR=$(hostname)
DATA_ROOT=${DATA_ROOT:-/data/tokens}
CHECKPOINTS="/checkpoints/llama3 70b"

LAUNCH="torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --rdzv_endpoint $MASTER_ADDR:29500"

MODEL_ARGS=(
    --num-layers 80          # of 8192
    --hidden-size 8192 --ffn-hidden-size 28672
    --num-attention-heads 64
    --group-query-attention --num-query-groups 8
    --seq-length $((8 * 1024)) --max-position-embeddings 8192
    --position-embedding-type rope --rotary-base 500000
    --norm-rms-norm --norm-epsilon 1e-5 --swiglu --disable-bias-linear
    --untied-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0
    --vocab-size 128256
)
TRAINING_ARGS=" \
    --micro-batch-size 1 --global-batch-size 4096 --train-iters 12000 \
    --lr 1.5e-4 --min-lr 1.5e-5 --lr-decay-style cosine --lr-warmup-iters 500 \
    --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 --bf16 "
TRAINING_ARGS+="--use-flash-attn --te-ln-scale-bf16"
if [ "$TP" -gt 1 ]; then
    PARALLEL_ARGS+=(--sequence-parallel)
fi
PARALLEL_ARGS+=(--tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} --use-distributed-optimizer
    --overlap-grad-reduce --overlap-param-gather --num-layers-per-virtual-pipeline-stage 20
    --recompute-granularity selective --recompute-modules "core_attn,mlp")
cat <<EOF
--num-layers 1 is printed only
EOF

srun bash -c "$LAUNCH pretrain_gpt.py \
    ${MODEL_ARGS[*]} \
    ${PARALLEL_ARGS[*]} \
    $TRAINING_ARGS --data-path 0.7 $DATA_ROOT/web_text_document 0.3 $DATA_ROOT/books_text_document \
    --split 949,50,1 --tokenizer-type HuggingFaceTokenizer --tokenizer-model $TOKENIZER \
    --save '$CHECKPOINTS' --load '$CHECKPOINTS' --save-interval 1000 --eval-iters 10 --log-intervall 5"
"""

# What makes either deck small enough for two cores. The data and the tokenizer are the test's.
SMALL = ["model.layers=4", "model.hidden=48", "model.heads=6", "model.kv_heads=2", "model.ffn=96", "model.seq_len=32",
         "model.vocab=257", "run.steps=2", "run.device=cpu", "run.threads=1", "precision.compute=fp32",
         "precision.gradients=fp32", "precision.reduce=fp32", "schedule.micro_batch=2", "schedule.global_batch=8",
         "optimizer.warmup_steps=1", "data.train=[work/text_text_document]", "data.tokenizer=bytes",
         'data.split="90,10,0"', "data.eval_every=0", "checkpoint.every=0", 'checkpoint.dir=""']


def call(*arguments, code=0):
    result = subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode != code:
        print(result.stdout[-3000:] + result.stderr[-2000:])
    check(result.returncode == code, f"{' '.join(arguments)[:90]}: exit code {code} ({result.returncode})")
    return result


def keys(text):
    """Values of a deck by full name, without comments."""
    values, groups = {}, []
    for line in text.splitlines():
        match = re.match(r"( *)(\w+):(?: +(\S.*?))?(?:  # .*)?$", line)
        if match:
            groups = groups[:len(match[1]) // 2] + [match[2]]
            values[".".join(groups)] = match[3]
    return values


def listed(text):
    """The comment in front of the keys by heading, unwrapped."""
    sections, heading = {}, ""
    for line in text[:text.index("\n\n")].splitlines():
        if re.match(r"# \S", line):
            heading = line[2:].split(";")[0].split(":")[0]
        elif line.startswith("#     "):
            sections[heading][-1] += " " + line[6:]
        elif line.startswith("#   "):
            sections.setdefault(heading, []).append(line[4:])
    return sections


def expect(name, text, wanted):
    got = keys(text)
    for key, value in wanted.items():
        check(got.get(key) == value, f"{name}: {key} is {value} ({got.get(key)})")


def mentions(name, section, *texts):
    for text in texts:
        check(any(text in line for line in section), f"{name}: '{text}' is listed")


def plans(name, deck, ranks, wanted):
    """The deck as it is, on the ranks that it was made for."""
    (WORK / "deck.yaml").write_text(deck)
    found = json.loads(call("plan", "work/deck.yaml", "--ranks", str(ranks), "--json").stdout)
    layout = {key: found["layout"][key] for key in wanted}
    check(layout == wanted, f"{name}: planned with {wanted} ({layout})")
    check(found["fits"] and found["step"]["seconds"] > 0, f"{name}: fits {ranks} ranks, and has a time")
    return found


def trains(name, deck, ranks, *more):
    (WORK / "deck.yaml").write_text(deck)
    call("print-deck", "work/deck.yaml")
    run(ranks, name, *SMALL, *more)
    check(len(metrics(name)) == 2, f"{name}: two steps scaled down")


def deepspeed():
    (WORK / "ds.json").write_text(json.dumps(ZERO3))
    result = call("import", "deepspeed", "work/ds.json", "model.preset=qwen2.5-7b", "data.train=[tokens]")
    deck, lists = result.stdout, listed(result.stdout)
    expect("deepspeed", deck, {
        "schedule.micro_batch": "2", "schedule.global_batch": "256", "parallel.zero": "3",
        "parallel.bucket": "16000000", "parallel.prefetch": str(3584 * 3584 * 9 // 10), "parallel.persistence": "35840",
        "parallel.max_live": "2000000000", "precision.compute": "bf16", "precision.gradients": "bf16",
        "optimizer.lr": "3e-4", "optimizer.min_lr": "3e-8", "optimizer.betas": "[0.9, 0.95]",
        "optimizer.eps": "1e-8", "optimizer.warmup": "log", "optimizer.warmup_steps": "500",
        "optimizer.schedule": "cosine", "run.steps": "20000",
        "schedule.recompute": "block", "output.log_every": "10", "model.preset": "qwen2.5-7b"})
    mentions("deepspeed", lists["Not supported"], "zero_optimization.offload_optimizer.device \"cpu\"")
    mentions("deepspeed", lists["Not applicable"], "overlap_comm", "stage3_max_reuse_distance", "sub_group_size",
             "stage3_gather_16bit_weights_on_model_save", "wall_clock_breakdown", "fp16.loss_scale")
    mentions("deepspeed", lists["Unknown names"],
             "zero_optimization.stage3_prefetch_bukcet_size 7: DeepSpeed has no such key; the nearest is "
             "zero_optimization.stage3_prefetch_bucket_size")
    mentions("deepspeed", lists["Not said by the source"], "the file has no data")
    check(not any("auto" in line for line in lists["Not said by the source"]), "deepspeed: auto follows from the model")
    check("1 unknown" in result.stderr, "deepspeed: the summary counts what is unknown")
    found = plans("deepspeed", deck, 8, {"tensor": 1, "pipeline": 1, "shard": 8, "zero": 3, "micro_batches": 16})
    # Weights in 16 bits for forward and backward of 16 micro-batches; embedding and head for one pass; norms stay.
    weights = 16 * 2 * (2 * found["parameters"] - 2 * 152064 * 3584)
    gathered = {(c["axis"], c["op"]): c["bytes"] for c in found["collectives"]}["shard", "all_gather"]
    check(abs(gathered / weights - 1) < 1e-3, f"deepspeed: weights are gathered ({gathered}, {weights})")
    trains("deepspeed", deck, 2, 'model.preset=""')


def megatron():
    (WORK / "train.sbatch").write_text(SBATCH)
    result = call("import", "megatron", "data.seed=7", "--", "work/train.sbatch")
    deck, lists = result.stdout, listed(result.stdout)
    check(not list(Path(".").rglob("executed-by-the-importer")), "megatron: the script is not run")
    expect("megatron", deck, {
        "run.name": "llama3-70b", "run.steps": "12000", "model.family": "llama", "model.layers": "80",
        "model.hidden": "8192", "model.kv_heads": "8", "model.ffn": "28672", "model.seq_len": "8192",
        "model.tied": "false", "model.qkv_bias": "false", "model.rope.theta": "5e5", "model.dropout": "0",
        "parallel.tensor": "8", "parallel.pipeline": "2", "parallel.sequence": "true", "parallel.zero": "1",
        "schedule.kind": "interleaved", "schedule.chunks": "2", "schedule.micro_batch": "1",
        "schedule.global_batch": "4096", "schedule.recompute": "selective",
        "schedule.recompute_modules": "[attention, mlp]", "optimizer.betas": "[0.9, 0.95]",
        "optimizer.weight_decay": "0.1", "optimizer.schedule": "cosine", "precision.gradients": "fp32",
        "data.train": '[{prefix: "/data/tokens/web_text_document", weight: 0.7}, '
                      '{prefix: "/data/tokens/books_text_document", weight: 0.3}]',
        "data.split": '"949,50,1"', "data.tokenizer": '"$TOKENIZER"', "data.eval_every": "1000",
        "data.eval_batches": "10", "data.seed": "7", "checkpoint.dir": '"/checkpoints/llama3 70b"',
        "checkpoint.every": "1000", "checkpoint.resume": "auto", "output.log_every": "100"})
    mentions("megatron", lists["Unknown names"], "--norm-rms-norm: Megatron-LM has no such argument: read as "
             "--normalization RMSNorm", "read as --untie-embeddings-and-output-weights", "--te-ln-scale-bf16",
             "read as --recompute-modules core_attn mlp", "--log-intervall 5: Megatron-LM has no such argument; the "
             "nearest is --log-interval")
    mentions("megatron", lists["Not said by the source"], "$TOKENIZER: line")
    mentions("megatron", lists["Not applicable"], "--use-flash-attn", "--overlap-grad-reduce")
    mentions("megatron", lists["Taken into account beyond the comments of the keys below"], "made for 64 ranks",
             "if: line")
    check(not lists.get("Not supported"), f"megatron: all of it is supported {lists.get('Not supported')}")
    found = plans("megatron", deck, 64, {"tensor": 8, "pipeline": 2, "chunks": 2, "data": 4, "micro_batches": 1024})
    check(found["parameters"] == 70_553_706_496, "megatron: it is Llama-3 70B")
    trains("megatron", deck, 4, "parallel.tensor=2", "parallel.pipeline=2", "run.deterministic=false")


def defaults():
    """An argument that is absent has Megatron's default, not llmtrain's."""
    line = "--num-layers 2 --hidden-size 96 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 " \
           "--micro-batch-size 2 --lr 1e-3 --train-iters 10".split()
    result = call("import", "megatron", "--ranks", "4", "--", *line)
    expect("defaults", result.stdout, {
        "model.family": "gpt", "model.kv_heads": "4", "model.ffn": "384", "model.qkv_bias": "true",
        "model.tied": "true", "model.activation": "gelu_tanh", "model.positions": "learned",
        "model.dropout": "0.1", "model.norm_eps": "1e-5",
        "parallel.zero": "0", "parallel.sequence": "false", "schedule.global_batch": "8", "schedule.recompute": "none",
        "optimizer.betas": "[0.9, 0.999]", "optimizer.weight_decay": "0.01", "optimizer.schedule": "linear",
        "optimizer.warmup_steps": "0", "optimizer.min_lr": "0", "optimizer.clip": "1", "precision.compute": "fp32",
        "data.eval_every": "1000", "data.eval_batches": "100", "output.log_every": "100", "checkpoint.every": "0",
        "checkpoint.resume": "never", "run.seed": "1234"})
    mentions("defaults", listed(result.stdout)["Not supported"],
             "Megatron's default (--attention-dropout absent): dropout of 0.1")
    result = call("import", "megatron", "--", *line, code=64)
    check("--ranks" in result.stderr and not result.stdout, "defaults: a global batch needs the number of ranks")


def errors():
    call("import", code=64)
    call("import", "deepspeeed", "x", code=64)
    call("import", "deepspeed", "work/none.json", code=66)
    call("import", "megatron", "--", "work/none.sbatch", code=66)
    twice = '{"bf16": {"enabled": 1, "enabled": 2}}'
    for text in ("{", "[1]", twice, '{"train_batch_size": "many"}'):
        (WORK / "bad.json").write_text(text)
        call("import", "deepspeed", "work/bad.json", "--ranks", "2", code=65)
    (WORK / "bad.sbatch").write_text("echo nothing here\n")
    result = call("import", "megatron", "--", "work/bad.sbatch", code=65)
    check("no command" in result.stderr, "a script without Megatron")
    result = call("import", "megatron", "--ranks", "1", "--", "--num-layers", "2", "--hidden-size", "100",
                  "--num-attention-heads", "3", "--lr", "1", "--micro-batch-size", "1", code=78)
    check("not divisible" in result.stderr and "heads: 3" in result.stdout, "an impossible deck is written and named")


prepare()
deepspeed()
megatron()
defaults()
errors()
finish()
