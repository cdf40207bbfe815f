#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2016  # backquotes are for the record
# What a machine with several GPUs is asked for in one go, in less than ten minutes: `doctor`, `verify` of layouts over all GPUs
# through NCCL, and training steps of large models on random tokens, on each GPU alone and on all. Writes one record.
#
# usage: perf/several_gpus.sh [BUILD] [OUT]     BUILD: folder with llmtrain (build; made if it is missing); OUT: for the logs and
#                                               record.md (runs/several_gpus)
# RANKS=4 DEVICE=cpu tries the script itself on a machine without GPUs, with small models.
# PARTS="doctor layouts speed" chooses, ONLY='^2 llama3-8b .*zero=3' of the training steps (ranks, model, keys; one rank is on
# each GPU); every run has a time limit and does not stop those after it.
set -u
cd "$(dirname "$0")/.." || exit
build=${1:-build}
out=${2:-runs/several_gpus}
device=${DEVICE:-cuda}
ranks=${RANKS:-$(nvidia-smi -L | wc -l)}
parts=${PARTS:-doctor layouts speed}
only=${ONLY:-.}
[ -x "$build/llmtrain" ] || make BUILD="$build" || exit
[ "$ranks" -ge 2 ] || { echo "$0: several GPUs are needed, there are $ranks" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
record=$out/record.md
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 NCCL_NVLS_ENABLE=0
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

# on RANKS NAME SECONDS ARGUMENT...: llmtrain with a time limit, its output in OUT/NAME.log
on() {
  local count=$1 name=$2 limit=$3
  shift 3
  timeout -k 5 "$limit" mpirun --oversubscribe --bind-to none -np "$count" "$build/llmtrain" "$@" >"$out/$name.log" 2>&1
}

doctor() {
  on "$ranks" doctor 90 doctor "$work/random.yaml" "parallel.tensor=2"
  local code=$?
  {
    printf '\n## Devices and links\n\n`llmtrain doctor`, tensor 2, exit code %d (1: something is slow)\n\n```\n' $code
    sed '/^-----/,$d' "$out/doctor.log"  # without mpirun's remarks on the exit code
    echo '```'
    if [ "$device" = cuda ]; then  # as the processes of doctor, without llmtrain
      printf '\nThe same by plain loops over NCCL (perf/nccl_loops.py)\n\n```\n'
      timeout -k 5 60 python3 -m torch.distributed.run --standalone --nproc-per-node "$ranks" perf/nccl_loops.py 2>&1 | grep GB/s
      echo '```'
    fi
  } >>"$record"
}

# layout KEY=VALUE...: this layout of a small model against one rank
layout() {
  local name code
  name=verify.$(echo "$*" | tr ' =.[]' '-----')
  on "$ranks" "$name" 60 verify "$work/small.yaml" "$@"
  code=$?
  printf '| `%s` | %s |\n' "$*" "$([ $code = 0 ] && echo 'the same model' || echo "exit code $code: $(head -n 1 "$out/$name.log")")" >>"$record"
}

layouts() {
  printf '\n## Layouts against one rank\n\n`llmtrain verify`, 3 steps, %s ranks\n\n| layout | |\n|---|---|\n' "$ranks" >>"$record"
  local zero
  for zero in 0 1 2 3; do layout parallel.zero=$zero parallel.persistence=0; done
  layout parallel.tensor="$ranks"
  layout parallel.tensor="$ranks" parallel.sequence=true
  layout parallel.pipeline="$ranks"
  layout parallel.pipeline=2 schedule.kind=interleaved schedule.chunks=2
  if [ "$ranks" -ge 4 ]; then
    for zero in 1 3; do layout parallel.tensor=2 parallel.sequence=true parallel.zero=$zero parallel.persistence=0; done
    layout parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true
    layout parallel.zero=3 parallel.shard=2 parallel.persistence=0
  fi
  if [ "$ranks" -ge 8 ]; then
    for zero in 0 1 2 3; do
      layout parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true parallel.zero=$zero parallel.persistence=0 \
        schedule.kind=interleaved schedule.chunks=2
    done
  fi
}

# run_speed NAME RANKS MODEL KEY=VALUE...: training steps, their metrics in WORK/NAME
run_speed() {
  local name=$1 count=$2 model=$3
  shift 3
  on "$count" "$name" 75 "$work/random.yaml" model.preset="$model" "run.dir=$work/$name" "$@" && : >"$work/$name/whole"
}

# row_of NAME RANKS MODEL COLUMN: tokens/s per rank, model FLOP/s utilisation, exposed communication and where time went
row_of() {
  local name=$1 count=$2
  shift 2
  if [ -f "$work/$name/whole" ]; then
    python3 perf/steps.py "$work/$name/metrics.jsonl" --ranks "$count" --exposed "$count" "$@" >>"$record"
  else
    printf '| %s | %s | %s | failed: %s | | | | |\n' "$count" "$@" "$(grep -m 1 error "$out/$name.log")" >>"$record"
  fi
}

# speed_of MODEL KEY=VALUE...: on all ranks
speed_of() {
  [[ "$ranks $*" =~ $only ]] || return
  local name
  name=speed.$ranks.$(echo "$*" | tr ' =/' '---')
  run_speed "$name" "$ranks" "$@"
  row_of "$name" "$ranks" "$1" "\`${*:2}\`"
}

# speed_of_each MODEL KEY=VALUE...: on one rank of each GPU, all at once: GPUs of one machine differ, and the slowest sets
# the pace of a layout
speed_of_each() {
  [[ "1 $*" =~ $only ]] || return
  local name gpu
  name=speed.1.$(echo "$*" | tr ' =/' '---')
  for ((gpu = 0; gpu < ranks; gpu++)); do CUDA_VISIBLE_DEVICES=$gpu run_speed "$name.$gpu" 1 "$@" & done
  wait
  for ((gpu = 0; gpu < ranks; gpu++)); do row_of "$name.$gpu" 1 "$1" "GPU $gpu, \`${*:2}\`"; done
}

speed() {
  {
    printf '\n## Training steps\n\nRandom tokens, bf16; medians of the steps after the third. Exposed: share of the step in which rank 0\n'
    printf 'computed nothing because it waited for communication.\n\n'
    printf '| ranks | model | layout | tok/s a rank | MFU, %% | exposed, %% | steps | timing, medians |\n'
    printf '|--:|---|---|--:|--:|--:|--:|---|\n'
  } >>"$record"
  if [ "$device" = cpu ]; then
    local small="model.layers=2 model.hidden=64 model.heads=4 model.kv_heads=2 model.head_dim=16 model.ffn=128 model.seq_len=128 schedule.micro_batch=2"
    # shellcheck disable=SC2086
    {
      speed_of_each llama3.2-1b $small schedule.global_batch=4
      speed_of llama3.2-1b $small schedule.global_batch=$((4 * ranks))
    }
    return
  fi
  local qwen="model.seq_len=1024 schedule.micro_batch=8" llama="model.seq_len=8192 schedule.micro_batch=1" zero ways keys
  local low="precision.gradients=bf16 precision.moments=bf16"
  # shellcheck disable=SC2086
  {
    # One GPU holds these only with bf16 gradients and moments: what the others are measured against, with as many micro-batches.
    speed_of_each qwen2.5-7b $qwen schedule.global_batch=64 $low
    speed_of_each llama3-8b $llama schedule.global_batch=4 $low
    low="$low precision.reduce=bf16"
    for keys in "" "$low"; do speed_of qwen2.5-7b $qwen schedule.global_batch=$((64 * ranks)) parallel.zero=1 $keys; done
    # With ZeRO-3 the largest gradients are added up on each GPU and sent once a step, where bf16 leaves room.
    for keys in "" "$low parallel.whole_gradients=[embedding,head]"; do
      speed_of qwen2.5-7b $qwen schedule.global_batch=$((64 * ranks)) parallel.zero=3 $keys
    done
    # What an H200 holds: more tokens for each gathered weight, or those of blocks whole, gathered once a step.
    speed_of qwen2.5-7b model.seq_len=1024 schedule.micro_batch=20 schedule.global_batch=$((80 * ranks)) parallel.zero=3 $low \
      "parallel.whole_gradients=[embedding,head]"
    speed_of qwen2.5-7b model.seq_len=1024 schedule.micro_batch=18 schedule.global_batch=$((72 * ranks)) parallel.zero=3 $low \
      parallel.persistence=2e8
    for zero in 1 3; do speed_of llama3-8b $llama schedule.global_batch=$((4 * ranks)) parallel.zero=$zero; done
    speed_of llama3-8b $llama schedule.global_batch=$((4 * ranks)) parallel.zero=3 $low
    for ways in 2 4 8; do
      [ "$ways" -le "$ranks" ] && speed_of llama3-8b $llama schedule.global_batch=$((4 * ranks)) parallel.tensor=$ways \
        parallel.sequence=true
    done
    for ways in 2 4; do
      [ "$ways" -le "$ranks" ] && speed_of llama3-8b $llama schedule.global_batch=$((8 * ranks / ways)) \
        parallel.pipeline=$ways schedule.kind=interleaved schedule.chunks=2
    done
    # The head takes as long as two layers: dealt as `plan --search` does.
    speed_of llama3-8b $llama schedule.global_batch=$((4 * ranks)) parallel.pipeline=2 \
      schedule.kind=interleaved schedule.chunks=4 "parallel.stage_layers=[4,4,4,4,4,4,5,3]"
    speed_of llama2-13b model.seq_len=4096 schedule.micro_batch=1 schedule.global_batch=$((4 * ranks)) parallel.zero=3 \
      schedule.recompute=selective
  }
}

python3 perf/random_tokens.py "$work/random" --vocab 32000 --tokens 4000000
python3 perf/random_tokens.py "$work/small" --vocab 257 --tokens 200000 --chain
cat >"$work/random.yaml" <<YAML
run: {name: random, device: $device, steps: ${STEPS:-6}, overwrite: true}
model: {preset: llama3.2-1b}
precision: {compute: bf16}
optimizer: {lr: 1e-4, warmup_steps: 2}
data: {train: [$work/random], tokenizer: bytes, eval_every: 0, split: "100,0,0"}
checkpoint: {every: 0}
YAML
cat >"$work/small.yaml" <<YAML
run: {name: small, device: $device, steps: 12}
model: {family: llama, layers: 16, hidden: 128, heads: 8, kv_heads: 8, ffn: 256, seq_len: 64}
schedule: {micro_batch: 1, global_batch: 32}
precision: {compute: fp32}
optimizer: {lr: 1e-3, warmup_steps: 2}
data: {train: [$work/small], tokenizer: bytes, eval_every: 0, split: "100,0,0"}
YAML
{
  printf '# Several GPUs of one host\n\n- date: %s; %s\n- machine: %s x %s\n- command: perf/several_gpus.sh, %s ranks\n' \
    "$(date -u +%F)" "$("$build/llmtrain" --version | head -n 1)" "$ranks" \
    "$([ "$device" = cuda ] && nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1 || echo CPU)" "$ranks"
} >"$record"
for name in $parts; do "$name"; done
cat "$record"
