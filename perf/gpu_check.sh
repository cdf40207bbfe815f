#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a GPU machine is asked for in one go: kernel tests on the GPU, small models on GPU and CPU and in PyTorch, layouts of
# ranks that share the GPU, equal runs, the memory checkers, and times of training steps on random tokens. Needs a built tree.
#
# usage: perf/gpu_check.sh [BUILD] [OUT]     BUILD: folder with llmtrain and tests/ (build); OUT: for logs (runs/gpu_check)
# PARTS="tests models torch layouts deterministic masks waits steps memcheck" chooses; every part has a time limit and does not stop
# those after it. ROWS="gpt2-124m ..." chooses among the models of steps. DEVICE=cpu tries the script without a GPU.
# PYTHON (python3) has numpy and h5py for models, and torch and transformers for torch.
set -u
cd "$(dirname "$0")/.." || exit
build=$(readlink -f "${1:-build}")
out=${2:-runs/gpu_check}
device=${DEVICE:-cuda}
python=${PYTHON:-python3}
parts=${PARTS:-tests models torch layouts deterministic masks waits steps memcheck}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-8} PYTHONDONTWRITEBYTECODE=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
verdicts=()
plain=  # the warning that attention runs in plain kernels: times of such steps say nothing

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
  LLMTRAIN_TEST_DEVICE=$device part kernels.back_ends 100 "$build/tests/test_kernels" '--source-file=*back_ends.cpp' -d
  LLMTRAIN_TEST_DEVICE=$device part kernels 200 "$build/tests/test_kernels" '--source-file-exclude=*back_ends.cpp' -d
  grep -hE 'warning|ERROR|expected|logged|test cases|assertions' "$out"/kernels*.log | head -80
}

# The three checkers side by side, each over one test file after the other, so that a limit leaves what was seen.
memcheck() {
  local tool jobs=()
  for tool in memcheck racecheck initcheck; do
    checker "$tool" &
    jobs+=($!)
  done
  wait "${jobs[@]}"
  for tool in memcheck racecheck initcheck; do
    verdicts+=("$(sed "s/^/sanitizer.$tool: /" "$out/sanitizer.$tool.txt" | tr '\n' ';')")
    echo "${verdicts[-1]}"
  done
}

# checker TOOL: the smaller files first; 0 of a file: clean, 9: errors, 124: past its limit
checker() {
  local file begin=$SECONDS
  : >"$out/sanitizer.$1.txt"
  for file in swiglu rms_norm layer_norm embedding cross_entropy rope gelu elementwise dropout init_normal bf16_gradients \
    optimizer attention gemm fp8 attention_back_ends; do
    ((SECONDS - begin < 200)) || { echo "$file and later: not run" >>"$out/sanitizer.$1.txt" && break; }
    LLMTRAIN_TEST_DEVICE=cuda LLMTRAIN_TUNE_GEMM=0 timeout -k 5 60 compute-sanitizer --tool "$1" --error-exitcode 9 \
      "$build/tests/test_kernels" "--source-file=*/$file.cpp" >"$out/sanitizer.$1.$file.log" 2>&1
    echo "$file exit $?" >>"$out/sanitizer.$1.txt"
  done
}

small_tokens() { [ -f "$work/small.bin" ] || python3 perf/random_tokens.py "$work/small" --vocab 257 --tokens 200000 --chain; }

random_tokens() { [ -f "$work/random.bin" ] || python3 perf/random_tokens.py "$work/random" --vocab 50257 --tokens 8000000; }
document_tokens() {
  [ -f "$work/documents.bin" ] || python3 perf/random_tokens.py "$work/documents" --vocab 257 --tokens 200000 --document 90 --chain
}

# Whole models with heads of 64 on GPU and CPU: losses and every gradient of a dump of each.
models() {
  small_tokens
  local precision where family keys
  for family in llama gpt; do
    keys="model.family=$family model.layers=4 model.hidden=256 model.heads=4 model.kv_heads=$([ $family = gpt ] && echo 4 || echo 2)"
    for precision in fp32 bf16; do
      for where in cpu "$device"; do
        # shellcheck disable=SC2086
        part "models.$family.$precision.$where" 60 "$build/llmtrain" verify "$work/small.yaml" $keys model.head_dim=64 \
          model.ffn=512 model.seq_len=256 "run.device=$where" "precision.compute=$precision" --steps 10 \
          --dump "$work/$family.$precision.$where.h5"
      done
    done
    part "models.$family.compare" 60 "$python" tests/golden/compare_dumps.py fp32 "$work/$family.fp32.cpu.h5" \
      "$work/$family.fp32.$device.h5"
    cat "$out/models.$family.compare.log"
    part "models.$family.compare.bf16" 60 "$python" tests/golden/compare_dumps.py bf16 "$work/$family.fp32.cpu.h5" \
      "$work/$family.bf16.cpu.h5" "$work/$family.bf16.$device.h5"
    cat "$out/models.$family.compare.bf16.log"
  done
}

torch() {
  local small=()
  [ "$device" = cpu ] && small=(--small --steps 20 --only llama)
  part torch 150 "$python" tests/golden/torch_shapes.py "$build/llmtrain" --device "$device" "${small[@]}"
  cat "$out/torch.log"
  part torch.tiny 150 "$python" tests/golden/huggingface.py "$build/llmtrain" --device "$device" --only qwen2_tied
  grep -E 'FAIL|gradient|losses|failed' "$out/torch.tiny.log"
}

# layout RANKS KEY=VALUE...: ranks that share the GPU against one, in fp32 but where linear layers are fp8
layout() {
  local ranks=$1 name compute=fp32
  shift
  [[ "$*" != *linear=fp8* ]] || compute=bf16
  name=layout.$ranks.$(echo "$*" | sed 's/[a-z]*\.//g' | tr ' =' '.-')
  OMP_NUM_THREADS=1 part "$name" 60 mpirun --oversubscribe --bind-to none -np "$ranks" "$build/llmtrain" verify \
    "$work/small.yaml" run.share_gpu=true precision.compute=$compute "$@" || tail -n 3 "$out/$name.log"
}

layouts() {
  small_tokens
  local zero interleaved="schedule.kind=interleaved schedule.chunks=2" all="parallel.tensor=2 parallel.pipeline=2"
  layout 2 parallel.tensor=2 parallel.sequence=false
  layout 2 parallel.tensor=2 parallel.sequence=true
  for zero in 0 1 2 3; do layout 2 parallel.zero=$zero parallel.persistence=0; done
  layout 2 parallel.pipeline=2
  layout 2 precision.linear=fp8 parallel.tensor=2 parallel.sequence=true
  layout 2 precision.linear=fp8 parallel.zero=3 parallel.persistence=0
  layout 2 precision.linear=fp8 precision.keep_fp8=true parallel.pipeline=2 model.family=gpt
  # shellcheck disable=SC2086
  {
    layout 2 parallel.pipeline=2 $interleaved
    layout 4 $all parallel.sequence=true
    layout 4 $all parallel.sequence=true $interleaved
    for zero in 1 3; do layout 8 $all parallel.sequence=true $interleaved parallel.zero=$zero parallel.persistence=0; done
  }
}

# equal NAME KEY=VALUE...: two runs in bf16: the same metrics, times apart, and the same bits in the checkpoints
equal() {
  local name=$1 run
  shift
  for run in 1 2; do
    part "$name.$run" 60 "$build/llmtrain" "$work/small.yaml" "run.dir=$work/$name.$run" run.deterministic=true \
      precision.compute=bf16 model.head_dim=64 model.seq_len=256 checkpoint.every=12 "$@"
  done
  part "$name.checkpoints" 60 "$build/llmtrain" checkpoint diff "$work/$name.1/checkpoints" "$work/$name.2/checkpoints"
  part "$name.metrics" 60 python3 -c 'import json, sys
a, b = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
for line in a + b: line.pop("timing", None)
print(len(a), "lines"); sys.exit(a != b or len(a) < 12)' "$work/$name.1/metrics.jsonl" "$work/$name.2/metrics.jsonl"
}

deterministic() {
  small_tokens
  document_tokens
  equal deterministic
  equal deterministic.fp8 precision.linear=fp8
  equal deterministic.documents "data.train=[$work/documents]" data.document_mask=true
}

# waits_of NAME DECK KEY=VALUE...: what each step but the first waited for and took
waits_of() {
  local name=$1 deck=$2 file="$out/waits.$1.txt"
  shift 2
  LLMTRAIN_CHECK_WAITS=$file part "waits.$name" 75 "$build/llmtrain" "$work/$deck.yaml" "run.dir=$work/waits.$name" \
    run.steps=8 precision.compute=bf16 "$@"
  sed 's/^step [0-9]*: //' "$file" | sort | uniq -c
  part "waits.$name.none" 5 awk '!/: 0 device-wide waits, 0 allocations, 0 bytes taken$/ { print; bad = 1 }
    END { exit bad || NR != 7 }' "$file"
}

# That steps neither wait for the whole device nor take memory, and that the check would see both.
waits() {
  [ "$device" = cpu ] && return
  small_tokens
  document_tokens
  random_tokens
  LLMTRAIN_TEST_DEVICE=$device part waits.control 60 "$build/tests/test_kernels" '--source-file=*/waits.cpp'
  cat "$out/waits.control.log"
  waits_of gpt small model.family=gpt model.dropout=0.1
  waits_of fp8 small precision.linear=fp8 precision.keep_fp8=true
  waits_of documents small "data.train=[$work/documents]" data.document_mask=true
  waits_of deterministic small run.deterministic=true model.seq_len=256
  waits_of llama3.2-1b random model.preset=llama3.2-1b model.seq_len=8192 schedule.micro_batch=1 schedule.global_batch=2
}

# steps_of ROW MUST MICRO MICRO_BATCHES KEY=VALUE...: times a model on random tokens; PROFILE=1 also by operation
steps_of() {
  local name=$1 must=$2 micro=$3 micro_batches=$4 batch=$(($3 * $4))
  shift 4
  [[ " ${ROWS:-$name} " == *" $name "* && -z $plain ]] || return
  if [ "$device" = cpu ]; then  # as the row says, but the sizes
    local given keys=()
    for given; do [[ $given =~ ^model\.(seq_len|layers) ]] || keys+=("$given"); done
    set -- "${keys[@]}" model.layers=1 model.hidden=64 model.heads=2 model.kv_heads=2 model.head_dim=32 model.ffn=64 \
      model.seq_len=32 model.vocab=512 "data.train=[$work/small]"
  fi
  if part "steps.$name" 170 "$build/llmtrain" "$work/random.yaml" "run.dir=$work/$name" "schedule.micro_batch=$micro" \
    "schedule.global_batch=$batch" "$@"; then
    python3 perf/steps.py "$work/$name/metrics.jsonl" --must "$must" "$name" "$micro x $micro_batches" | tee -a "$out/steps.md"
  else
    echo "| $name | $micro x $micro_batches | failed: $(tail -n 1 "$out/steps.$name.log") |" | tee -a "$out/steps.md"
  fi
  grep -hE 'warning' "$out/steps.$name.log" | head -5
  plain=$(grep -m 1 'attention runs in plain kernels' "$out/steps.$name.log")
  [ -z "$plain" ] || { echo "| all later rows | | stopped: attention runs in plain kernels |" | tee -a "$out/steps.md"; return; }
  [ -n "${PROFILE:-}" ] || return
  LLMTRAIN_PROFILE=1 part "profile.$name" 60 "$build/llmtrain" "$work/random.yaml" "run.dir=$work/$name.profile" \
    "schedule.micro_batch=$micro" "schedule.global_batch=$batch" "$@" run.steps=6
  sed -n '/device time/,$p' "$out/profile.$name.log" | head -40
}

# Document masks: the kernels, a model on GPU and CPU, and what attention and steps take with documents of 700 tokens.
masks() {
  LLMTRAIN_TEST_DEVICE=$device part masks.kernels 100 "$build/tests/test_kernels" '--source-file=*attention*' -d
  grep -hE 'warning|WARNING|ERROR|expected|values:|logged|test cases|assertions' "$out/masks.kernels.log" | head -60
  document_tokens
  local name where precision key
  for name in fp32.cpu bf16.cpu "bf16.$device"; do
    precision=${name%.*} where=${name#*.}
    part "masks.$name" 60 "$build/llmtrain" verify "$work/small.yaml" model.seq_len=256 model.kv_heads=2 \
      "data.train=[$work/documents]" data.document_mask=true "run.device=$where" "precision.compute=$precision" \
      --steps 10 --dump "$work/masks.$name.h5"
    grep -h warning "$out/masks.$name.log"
  done
  part masks.compare 60 "$python" tests/golden/compare_dumps.py bf16 "$work/masks.fp32.cpu.h5" "$work/masks.bf16.cpu.h5" \
    "$work/masks.bf16.$device.h5"
  cat "$out/masks.compare.log"
  [ "$device" = cpu ] && return
  python3 perf/random_tokens.py "$work/pages" --vocab 50257 --tokens 2000000 --document 700
  for key in data.document_mask=false data.document_mask=true; do
    name=${key#*=}
    part "masks.speed.$name" 60 "$build/perf/kernel_speed" --models llama3.2-1b,qwen2.5-1.5b --only attention "$key"
    grep -h attention "$out/masks.speed.$name.log"
    part "masks.steps.$name" 75 "$build/llmtrain" "$work/random.yaml" "run.dir=$work/masks.steps" run.steps=12 \
      schedule.micro_batch=2 schedule.global_batch=8 model.seq_len=8192 model.preset=llama3.2-1b \
      "data.train=[$work/pages]" "$key"
    grep -h warning "$out/masks.steps.$name.log"
    python3 perf/steps.py "$work/masks.steps/metrics.jsonl" --must 57500 llama3.2-1b "$key"
  done
}

# The last number is of micro-batches: as many as the best peer of a row took. 23 steps take up to two minutes, all rows 15.
steps() {
  small_tokens
  [ "$device" = cpu ] || random_tokens
  local low="precision.gradients=bf16 precision.moments=bf16" short=model.seq_len=1024 long=model.seq_len=8192
  printf '| model | micro-batch | tok/s | must | of it | MFU, %% | steps | timing, medians |\n|---|---|--:|--:|--:|--:|--:|---|\n' |
    tee "$out/steps.md"
  steps_of gpt2-124m 578000 64 8 $short
  steps_of gpt2-1.5b 54000 16 16 $short model.preset=gpt2-1.5b
  # shellcheck disable=SC2086
  {
    steps_of qwen2.5-1.5b.bf16 60800 16 16 $short model.preset=qwen2.5-1.5b $low
    steps_of qwen2.5-1.5b 60800 16 16 $short model.preset=qwen2.5-1.5b
    steps_of qwen2.5-3b.bf16 31200 16 8 $short model.preset=qwen2.5-3b $low
    steps_of qwen2.5-3b 31200 16 8 $short model.preset=qwen2.5-3b
    steps_of qwen2.5-7b.bf16 14300 8 8 $short model.preset=qwen2.5-7b $low
    # The best published in fp8, on eight H100 each.
    steps_of qwen2.5-7b.fp8 19875 8 8 $short model.preset=qwen2.5-7b $low precision.linear=fp8
    steps_of qwen2.5-7b.fp8.kept 19875 8 8 $short model.preset=qwen2.5-7b $low precision.linear=fp8 precision.keep_fp8=true
    steps_of llama3-8b.fp8 14451 1 4 $long model.preset=llama3-8b $low precision.linear=fp8
    steps_of llama3-8b.fp8.kept 14451 1 4 $long model.preset=llama3-8b $low precision.linear=fp8 precision.keep_fp8=true
  }
  steps_of llama3.2-1b 57500 2 4 $long model.preset=llama3.2-1b
  steps_of llama3.2-3b 23000 1 4 $long model.preset=llama3.2-3b
  steps_of llama3-8b-8 38500 1 4 $long model.preset=llama3-8b model.layers=8
}

cat >"$work/small.yaml" <<YAML
run: {name: small, device: $device, steps: 12}
model: {family: llama, layers: 4, hidden: 256, heads: 4, kv_heads: 4, head_dim: 64, ffn: 512, seq_len: 128, vocab_multiple: 128}
schedule: {micro_batch: 1, global_batch: 8}
optimizer: {lr: 1e-3, warmup_steps: 2}
data: {train: [$work/small], tokenizer: bytes, eval_every: 0, split: "100,0,0"}
checkpoint: {every: 0}
YAML
cat >"$work/random.yaml" <<YAML
run: {name: random, device: $device, steps: 23, overwrite: true}
model: {preset: gpt2-124m}
precision: {compute: bf16}
optimizer: {lr: 1e-4, warmup_steps: 2}
data: {train: [$work/random], tokenizer: bytes, eval_every: 0, split: "100,0,0"}
checkpoint: {every: 0}
YAML
[ "$device" = cpu ] || nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv | tee "$out/gpu.txt"
for name in $parts; do
  echo "== $name"
  "$name"
done
echo "== summary"
printf '%s\n' "${verdicts[@]}" | tee "$out/summary.txt"
