#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a GPU machine is asked for in one go: kernel tests on the GPU, the memory checker over a part of them, a small model
# on GPU and CPU, and times of training steps on random tokens. Needs a built tree and about 7 minutes of one H100 or H200.
#
# usage: perf/gpu_check.sh [BUILD] [OUT]     BUILD: folder with llmtrain and tests/ (build); OUT: for logs (runs/gpu_check)
# PARTS="tests memcheck small steps" chooses; every part has a time limit and does not stop those after it.
set -u
cd "$(dirname "$0")/.." || exit
build=$(readlink -f "${1:-build}")
out=${2:-runs/gpu_check}
parts=${PARTS:-tests small steps memcheck}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-8}
verdicts=()

# part NAME SECONDS COMMAND...: runs it with a limit, keeps its output, notes its exit code and time
part() {
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
  code=$?
  verdicts+=("$(printf '%-28s exit %3d  %4d s' "$name" "$code" $((SECONDS - begin)))")
  echo "${verdicts[-1]}"
  return "$code"
}

tests() {
  LLMTRAIN_TEST_DEVICE=cuda part kernels.back_ends 100 "$build/tests/test_kernels" '--source-file=*/back_ends.cpp' -d
  LLMTRAIN_TEST_DEVICE=cuda part kernels 200 "$build/tests/test_kernels" '--source-file-exclude=*/back_ends.cpp' -d
  grep -hE 'warning|ERROR|expected|logged|test cases|assertions' "$out"/kernels*.log | head -80
}

memcheck() {
  local tool
  for tool in memcheck racecheck; do
    LLMTRAIN_TEST_DEVICE=cuda part "sanitizer.$tool" 60 compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$build/tests/test_kernels" '--source-file=*/swiglu.cpp,*/rms_norm.cpp,*/embedding.cpp,*/cross_entropy.cpp,*/rope.cpp'
    tail -n 3 "$out/sanitizer.$tool.log"
  done
}

# The loss of each step of a run
losses() {
    [ -f "$1/metrics.jsonl" ] || { echo "no losses"; return; }
  python3 -c 'import json, sys
print(" ".join("%.6f" % json.loads(line)["loss"] for line in open(sys.argv[1])))' "$1/metrics.jsonl"
}

small() {
  python3 perf/random_tokens.py "$work/small" --vocab 257 --tokens 200000 --chain
  local precision device family deck zero
  for family in llama gpt; do
    [ $family = gpt ] && deck=inputs/gpt.yaml || deck=inputs/demo.yaml
    for precision in fp32 bf16; do
      for device in cpu cuda; do
        part "small.$family.$precision.$device" 60 "$build/llmtrain" "$deck" "data.train=[$work/small]" \
          "run.device=$device" "precision.compute=$precision" "run.dir=$work/$family.$precision.$device" run.steps=24 run.stop_after=12 \
          checkpoint.every=0 data.eval_every=0 model.vocab_multiple=128
        losses "$work/$family.$precision.$device" | tee "$out/losses.$family.$precision.$device"
      done
    done
  done
  tail -n 5 "$out"/small.llama.fp32.cuda.log
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  for zero in 0 1; do  # two ranks on one GPU
    part "small.shared.zero$zero" 90 mpirun --oversubscribe --bind-to none -np 2 "$build/llmtrain" inputs/demo.yaml \
      "data.train=[$work/small]" run.device=cuda run.share_gpu=true precision.compute=fp32 \
      "run.dir=$work/shared.$zero" run.steps=24 run.stop_after=12 checkpoint.every=0 data.eval_every=0 "parallel.zero=$zero"
    losses "$work/shared.$zero" | tee "$out/losses.shared.zero$zero"
  done
}

# steps_of NAME SECONDS STEPS key=value...: times a model on random tokens
steps_of() {
  local name=$1 limit=$2 steps=$3
  shift 3
  part "steps.$name" "$limit" "$build/llmtrain" "$work/random.yaml" "run.dir=$work/$name" "run.steps=$steps" "$@"
  grep -hE 'device |model |memory|warning|error|mean|by 6 N' "$out/steps.$name.log" | head -20
  grep -E '^step' "$out/steps.$name.log" | tail -n 3
  LLMTRAIN_PROFILE=1 part "profile.$name" "$limit" "$build/llmtrain" "$work/random.yaml" "run.dir=$work/$name.profile" "$@" \
    run.steps=6
  sed -n '/device time/,$p' "$out/profile.$name.log" | head -40
}

steps() {
  LLMTRAIN_TEST_DEVICE=cuda part attention 60 "$build/tests/test_kernels" '--test-case=attention of model shapes*'
  if grep -E 'warning|ERROR' "$out/attention.log"; then
    echo "attention is not as it should be: no times are taken"
    return
  fi
  python3 perf/random_tokens.py "$work/random" --vocab 50257 --tokens 6000000
  cat >"$work/random.yaml" <<YAML
run: {name: random, device: cuda, overwrite: true}
model: {preset: gpt2-124m}
precision: {compute: bf16}
optimizer: {lr: 1e-4, warmup_steps: 2}
data: {train: [$work/random], tokenizer: bytes, eval_every: 0, split: "100,0,0"}
checkpoint: {every: 0}
YAML
  steps_of gpt2-124m 60 20 schedule.micro_batch=64 schedule.global_batch=512
  steps_of qwen2.5-1.5b 60 12 model.preset=qwen2.5-1.5b model.seq_len=1024 schedule.micro_batch=16 \
    schedule.global_batch=64
  steps_of llama3.2-1b 60 12 model.preset=llama3.2-1b model.seq_len=8192 schedule.micro_batch=2 schedule.global_batch=8
}

nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv | tee "$out/gpu.txt"
for name in $parts; do
  echo "== $name"
  "$name"
done
echo "== summary"
printf '%s\n' "${verdicts[@]}" | tee "$out/summary.txt"
