#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TEMPORARY: which variant of packed attention is right, in processes of their own because a crash ends one.
# usage: perf/masks_probe.sh BUILD OUT
set -u
build=$1 out=$2
mkdir -p "$out"
probe() {  # VARIANT MASKS: letters of LLMTRAIN_MASKS, numbers of masks
  local log="$3/probe.${1:-default}.$2.log"
  LLMTRAIN_MASKS=$1 LLMTRAIN_TEST_MASK=$2 LLMTRAIN_TEST_DEVICE=${DEVICE:-cuda} timeout -k 2 45 \
    "$4/tests/test_kernels" -tc='*attention*<*Bf16>' --source-file='*attention_back_ends*' >"$log" 2>&1
  echo "exit $?" >>"$log"
}
export -f probe
for variant in '' n r rn i in w s; do
  for masks in 0123456 7 8; do echo "'$variant' $masks $out $build"; done
done | xargs -P 8 -L 1 bash -c 'probe "$@"' probe
for log in "$out"/probe.*.log; do
  echo "== ${log##*/}: $(tail -n 1 "$log"), $(grep -c '^  d_q: right' "$log") of $(grep -c 'sequences of' "$log") d_q right"
  # The first case with something wrong or refused, and how the last one ended.
  awk '/sequences of/ { head = $0 } /: (wrong in|.*elements)|refused: .[^\x27]/ { if (shown < 6) { if (head != "") print head; head = ""; print; shown++ } }' "$log" |
    cut -c1-260
  grep -E -m 3 'error|illegal|exception|Error' "$log" | cut -c1-200
  grep -q '^exit 0' "$log" || grep 'sequences of' "$log" | tail -n 1
done
