#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the parsers of tests/fuzz with libFuzzer under AddressSanitizer and UndefinedBehaviorSanitizer (clang needed).
# usage: fuzz.sh [SECONDS [FOLDER]]: so long each target, one after the other (60); what was found and the corpus, which
# the next run goes on from, are in FOLDER (build-fuzz). Exit 1 at the first finding: its input is FOLDER/crash-...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
folder=${2:-build-fuzz}

generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
cmake -S . -B "$folder" "${generator[@]}" -DCMAKE_CXX_COMPILER="${CXX:-clang++}" -DCMAKE_C_COMPILER="${CC:-clang}" \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DLLMTRAIN_FUZZ=ON -DLLMTRAIN_SANITIZE=address,undefined
cmake --build "$folder" -j "${JOBS:-2}"
for target in "$folder"/tests/fuzz/fuzz_*; do
  name=${target##*/fuzz_}
  corpus=$folder/corpus-$name
  "$folder/tests/fuzz/replay_$name" --write-seeds "$corpus"
  "$target" -max_total_time="$seconds" -max_len=4096 -timeout=120 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$folder/" "$corpus"
done
