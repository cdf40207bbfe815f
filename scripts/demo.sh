#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From text to a sample in minutes: corpus -> token file -> training on two ranks -> generated text. What is there already
# is used again; `rm -r runs/demo data/demo` starts from nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

deck=inputs/demo.yaml
checkpoints=runs/demo/checkpoints
prompt=${DEMO_PROMPT:-"The king said to him, "}

# More ranks than a small machine has cores, no binding; as root only where this is run as root.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
if ((EUID == 0)); then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

say() { printf '\n== %s\n' "$*"; }
show() {
  printf '$ %s\n' "${*@Q}"
  "$@"
}

scripts/make_demo_data.sh

say "3/4 training on two ranks, as $deck says (about two minutes)"
steps=$(sed -nE 's/^ +steps: *([0-9]+).*/\1/p' "$deck")
last=$checkpoints/step-$(printf %08d "$steps")
if [[ $last/manifest.json -nt $deck ]]; then
  echo "$last is there"
else
  show mpirun -np 2 ./llmtrain "$deck"
fi

say "4/4 a sample from $checkpoints"
show ./llmtrain generate "$checkpoints" --prompt "$prompt"

say "done in $SECONDS s; runs/demo holds deck.yaml, log.txt, metrics.jsonl and checkpoints/"
