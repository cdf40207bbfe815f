#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TEMPORARY: which variant of packed attention is right, in processes of their own because a crash ends one; then the part
# "waits" of gpu_check.sh, a model on GPU and CPU, and times of attention.
# usage: perf/masks_probe.sh BUILD OUT
set -u
cd "$(dirname "$0")/.." || exit
build=$(readlink -f "$1") out=$2
mkdir -p "$out"
probe() {  # VARIANT MASKS: letters of LLMTRAIN_MASKS, numbers of masks
  local log="$3/probe.${1:-default}.$2.log"
  LLMTRAIN_MASKS=$1 LLMTRAIN_TEST_MASK=$2 LLMTRAIN_TEST_DEVICE=${DEVICE:-cuda} timeout -k 2 45 \
    "$4/tests/test_kernels" -tc='*attention*<*Bf16>' --source-file='*attention_back_ends*' >"$log" 2>&1
  echo "exit $?" >>"$log"
}
export -f probe
{
  for variant in '' n; do for masks in 0123456 7 8; do echo "'$variant' $masks $out $build"; done; done
  for variant in r rn; do for masks in 156 78; do echo "'$variant' $masks $out $build"; done; done
  for variant in i w; do echo "'$variant' 156 $out $build"; done
  echo "s 1 $out $build"
} | xargs -P 8 -L 1 bash -c 'probe "$@"' probe
for log in "$out"/probe.*.log; do
  echo "== ${log##*/}: $(tail -n 1 "$log"), $(grep -c '^  d_q: right' "$log") of $(grep -c 'sequences of' "$log") d_q right"
  # The first case with something wrong or refused, and how the last one ended.
  awk '/sequences of/ { head = $0 } /: (wrong in|.*elements)|refused: .[^\x27]/ { if (shown < 6) { if (head != "") print head; head = ""; print; shown++ } }' "$log" |
    cut -c1-260
  grep -E -m 3 'error|illegal|exception|Error' "$log" | cut -c1-200
  grep -q '^exit 0' "$log" || grep 'sequences of' "$log" | tail -n 1
done
echo "== probes took $SECONDS s"
[ "${DEVICE:-cuda}" = cpu ] && exit
PARTS=waits perf/gpu_check.sh "$build" "$out/waits" | grep -v '^ *$' | cut -c1-200
grep -hE '^ +(device|software|peak|products|start) ' "$out/waits/waits.llama3.2-1b.log"
echo "== until here $SECONDS s"
python3 perf/random_tokens.py "$out/documents" --vocab 257 --tokens 200000 --document 90 --chain
cat >"$out/small.yaml" <<YAML
run: {name: small, device: cpu, steps: 12}
model: {family: llama, layers: 4, hidden: 256, heads: 4, kv_heads: 2, head_dim: 64, ffn: 512, seq_len: 256, vocab_multiple: 128}
schedule: {micro_batch: 2, global_batch: 8}
optimizer: {lr: 1e-3, warmup_steps: 2}
data: {train: [$out/documents], document_mask: true, tokenizer: bytes, eval_every: 0, split: "100,0,0"}
checkpoint: {every: 0}
YAML
for name in fp32.cpu bf16.cpu bf16.cuda; do
  OMP_NUM_THREADS=5 timeout 40 "$build/llmtrain" verify "$out/small.yaml" "run.device=${name#*.}" \
    "precision.compute=${name%.*}" --steps 10 --dump "$out/$name.h5" >"$out/verify.$name.log" 2>&1 &
done
wait
grep -h warning "$out"/verify.*.log
"${PYTHON:-python3}" tests/golden/compare_dumps.py bf16 "$out/fp32.cpu.h5" "$out/bf16.cpu.h5" "$out/bf16.cuda.h5"
for key in true false; do
  timeout 30 "$build/perf/kernel_speed" --models llama3.2-1b,qwen2.5-1.5b --only attention data.document_mask=$key 2>&1 |
    grep -E 'attention|warning' | sed "s/^/masks $key: /"
done
echo "== $SECONDS s"
