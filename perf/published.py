#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predictions of `llmtrain plan` beside published bf16 training rates and our own measured ones, as a Markdown table.

usage: perf/published.py [PROGRAM]     (default ./llmtrain)
The published runs are of other programs, with other kernels, libraries and optimizer precision: a prediction is what
this program would do in the same layout; where a program's kernels have published rates of their own, a second one is
what it would do with those (STACKS). The last column names the sources.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else "./llmtrain"
GPT = "family: gpt, tied: true, vocab: 50432"
QWEN14 = ("layers: 48, hidden: 5120, heads: 40, kv_heads: 8, head_dim: 128, ffn: 13824, vocab: 152064, qkv_bias: true, "
          "rope: {theta: 1e6}")
LLAMA7 = "layers: 32, hidden: 4096, heads: 32, kv_heads: 32, head_dim: 128, ffn: 11008, vocab: 32000"


def gpt(layers, hidden, heads):
    return f"{GPT}, layers: {layers}, hidden: {hidden}, heads: {heads}, kv_heads: {heads}, ffn: {4 * hidden}"


# Kernels of other programs, in the keys of hardware files. Attention by what the FlashAttention-3 paper
# (arXiv 2407.08608) shows of causal heads of 128 on an H100, from sequences of 512 to 16k: FlashAttention-2 191 to 335
# and 214 to 322 TFLOP/s (forward, backward), FlashAttention-3 292 to 616 and 316 to 561; rate / (1 + half / s) goes
# through both ends. Norms of torch.compile by cudnn-frontend benchmark/norms/results/h200: 0.73 to 0.87 and 0.35 to
# 0.48 of the bandwidth. Their collectives are all NCCL's.
NCCL = "copies: {bandwidth: 0}"
NORMS = ("efficiency: {rms_norm_forward: 0.8, layer_norm_forward: 0.8, rms_norm_backward: 0.42, "
         "layer_norm_backward: 0.42}")
STACKS = {
    "FlashAttention-2, torch norms": ["attention_forward: {bf16: 343e12, half: 407}",
                                      "attention_backward: {bf16: 327e12, half: 270}", NORMS, NCCL],
    "FlashAttention-3, torch norms": ["attention_forward: {bf16: 639e12, half: 608}",
                                      "attention_backward: {bf16: 575e12, half: 420}", NORMS, NCCL],
}
STACK_OF = {"fms-fsdp": "FlashAttention-2, torch norms", "llm-foundry": "FlashAttention-2, torch norms",
            "ml-engineering": "FlashAttention-3, torch norms"}

# what, model, sequence, gpu, GPUs, micro-batch, micro-batches, other keys, tokens/s a GPU, source
AC = {"schedule.recompute": "selective"}
FULL = {"schedule.recompute": "block"}
OWN = "own, perf/records"
ROWS = [
    ("GPT-2 124M", "preset: gpt2-124m", 1024, "h200", 1, 64, 8, {}, 567479, OWN),
    ("Qwen2.5-1.5B", "preset: qwen2.5-1.5b", 1024, "h200", 1, 16, 4, {}, 59411, OWN),
    ("Llama-3.2-1B", "preset: llama3.2-1b", 8192, "h200", 1, 2, 4, {}, 58862, OWN),
    ("Qwen2.5-1.5B", "preset: qwen2.5-1.5b", 1024, "h100-80g", 1, 16, 16, {}, 58800, "llmq"),
    ("Qwen2.5-3B", "preset: qwen2.5-3b", 1024, "h100-80g", 1, 16, 8, {}, 30920, "llmq"),
    ("Qwen2.5-7B", "preset: qwen2.5-7b", 1024, "h100-80g", 1, 8, 8, {}, 13850, "llmq"),
    ("Qwen2.5-1.5B", "preset: qwen2.5-1.5b", 1024, "h100-80g", 8, 16, 16, {}, 57125, "llmq"),
    ("Qwen2.5-3B", "preset: qwen2.5-3b", 1024, "h100-80g", 8, 16, 8, {}, 30000, "llmq"),
    ("Qwen2.5-7B", "preset: qwen2.5-7b", 1024, "h100-80g", 8, 8, 8, {}, 14000, "llmq"),
    ("Qwen2.5-14B", QWEN14, 1024, "h100-80g", 8, 8, 8, {"parallel.zero": "3"} | AC, 6112, "llmq"),
    ("Llama-2 7B", LLAMA7, 4096, "h100-80g", 96, 2, 1, {"parallel.zero": "3"}, 9600, "fms-fsdp"),
    ("Llama-2 13B", "preset: llama2-13b", 4096, "h100-80g", 96, 2, 1, {"parallel.zero": "3"} | AC, 4850, "fms-fsdp"),
    ("Llama-2 34B", "preset: codellama-34b", 4096, "h100-80g", 96, 2, 1, {"parallel.zero": "3"} | AC, 1830, "fms-fsdp"),
    ("MPT-3B", gpt(32, 2560, 20), 1024, "h100-80g", 8, 32, 1, {"parallel.zero": "3"}, 27046, "llm-foundry"),
    ("MPT-7B", gpt(32, 4096, 32), 2048, "h100-80g", 8, 6, 1, {"parallel.zero": "3"}, 10643, "llm-foundry"),
    ("MPT-13B", gpt(40, 5120, 40), 2048, "h100-80g", 128, 4, 1, {"parallel.zero": "3"} | FULL, 5080, "llm-foundry"),
    ("MPT-30B", gpt(48, 7168, 56), 2048, "h100-80g", 32, 8, 1, {"parallel.zero": "3"} | FULL, 2308, "llm-foundry"),
    ("MPT-70B", gpt(80, 8192, 64), 2048, "h100-80g", 128, 8, 1, {"parallel.zero": "3"} | FULL, 1058, "llm-foundry"),
    ("Llama-3.1-8B", "preset: llama3-8b", 8192, "h200", 8, 1, 1, {"parallel.zero": "2"}, 8960, "ml-engineering"),
    ("Llama-3.1-70B", "preset: llama3-70b", 8192, "h200", 256, 1, 1, {"parallel.zero": "3"} | AC, 1056, "gpu-recipes"),
]


def predict(row, folder, stack):
    """The predicted step, with the program's own kernels or those of `stack`."""
    _, model, sequence, gpu, ranks, micro_batch, micro_batches, keys, _, _ = row
    deck, hardware = Path(folder) / "deck.yaml", Path(folder) / "hardware.yaml"
    deck.write_text(f"model: {{{model}, seq_len: {sequence}}}\n")
    hardware.write_text("\n".join([f"base: {gpu}", *STACKS.get(stack, [])]))
    command = [PROGRAM, "plan", str(deck), "--ranks", str(ranks), "--hardware", str(hardware), "--json",
               f"schedule.micro_batch={micro_batch}", f"schedule.global_batch={micro_batch * micro_batches * ranks}"]
    done = subprocess.run(command + [f"{k}={v}" for k, v in keys.items()], capture_output=True, text=True)
    if not done.stdout:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["step"]


def main():
    print("| model | sequence | GPUs | micro-batch x accumulated | keys | run, tokens/s a GPU | predicted | off | "
          "with the kernels of the run | off | run's source |\n|---|--:|--:|--:|---|--:|--:|--:|--:|--:|---|")
    within = [0, 0]
    with tempfile.TemporaryDirectory() as folder:
        for row in ROWS:
            name, _, sequence, gpu, ranks, micro_batch, micro_batches, keys, published, source = row
            stack = STACK_OF.get(source, "")
            rates = [predict(row, folder, kernels)["tokens_per_second_per_rank"] for kernels in ("", stack)]
            for i, rate in enumerate(rates):
                within[i] += abs(rate / published - 1) <= 0.2
            own, other = (f"{rate:,.0f} | {100 * (rate / published - 1):+.0f} %" for rate in rates)
            print(f"| {name} | {sequence} | {ranks} x {gpu} | {micro_batch} x {micro_batches} | "
                  f"{' '.join(f'{k}={v}' for k, v in keys.items())} | {published:,} | {own} | "
                  f"{other if stack else '|'} | {source} |")
    print(f"\n{within[0]} of {len(ROWS)} within 20 %, {within[1]} with the kernels of the run.")


if __name__ == "__main__":
    main()
