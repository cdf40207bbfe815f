#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo's data: English prose as JSONL, then as a token file; steps 1 and 2 of scripts/demo.sh. Reuses what is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

corpus=data/demo/corpus.jsonl
prefix=data/demo/corpus

printf '\n== 1/4 English prose, a JSON object a line\n'
scripts/make_demo_corpus.py "$corpus"

printf '\n== 2/4 the prose as a token file, one token a byte\n'
if [[ ${prefix}_text_document.bin -nt $corpus && ${prefix}_text_document.idx -nt $corpus ]]; then
  echo "${prefix}_text_document.bin and .idx are there"
else
  command=(./llmtrain preprocess --input "$corpus" --output-prefix "$prefix" --tokenizer bytes --append-eod)
  echo "\$ ${command[*]}"
  "${command[@]}"
fi
