#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the program with an independent implementation of the models in NumPy (tests/golden/*.py), and checks that the
# golden numbers which CI compares with are still that implementation's; and the list of DeepSpeed's keys that the importer
# knows (tests/golden/deepspeed_keys.txt) with DeepSpeed's own source.
# usage: oracles.sh [--write] [--huggingface] [--megatron] [FOLDER]; --write writes the golden numbers (tests/golden/*.json)
# instead. --huggingface exchanges models with PyTorch and transformers 5 and 4 instead, and compares logits, losses and
# gradients (tests/golden/huggingface.py); its packages take 6 GB. --megatron does also what megatron-core says of the order
# and the files of data, in an environment of its own beside FOLDER: it wants an older NumPy, and PyTorch, some gigabytes.
# FOLDER, else $LLMTRAIN_ORACLES, else ~/.cache/llmtrain-oracles: a Python environment with numpy, h5py, tokenizers and
# tiktoken, made once, outside the source tree. $LLMTRAIN_TEST_DATA, if set, is a folder with tokenizers/gpt2,
# tokenizers/llama3 and text/*.txt: then their ids are compared too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

write=()
huggingface=false
megatron=false
while [[ ${1-} == --* ]]; do
  case $1 in
    --write) write=(--write) ;;
    --huggingface) huggingface=true ;;
    --megatron) megatron=true ;;
    *) echo "oracles: unknown option $1" >&2 && exit 64 ;;
  esac
  shift
done
folder=${1:-${LLMTRAIN_ORACLES:-${XDG_CACHE_HOME:-$HOME/.cache}/llmtrain-oracles}}
python=$folder/bin/python3

if ! "$python" -c 'import numpy, h5py, tokenizers, tiktoken' 2>/dev/null; then
  echo "oracles: making a Python environment with numpy, h5py, tokenizers and tiktoken in $folder"
  python3 -m venv "$folder" || {
    echo "oracles: no environment; as root: apt-get install python3-venv" >&2
    exit 1
  }
  "$python" -m pip install --quiet numpy h5py tokenizers tiktoken
fi

export PYTHONDONTWRITEBYTECODE=1
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1  # tiny matrices
if $huggingface; then
  packages=$folder/transformers4  # in front of the environment's own
  "$python" -c 'import torch, safetensors; from transformers import LlamaForCausalLM' 2>/dev/null ||
    "$python" -m pip install --quiet torch 'transformers>=5' safetensors
  [[ -d $packages ]] || "$python" -m pip install --quiet --no-deps --target "$packages" 'transformers<5' \
    'huggingface-hub<1' 'tokenizers<0.23' requests urllib3 idna certifi charset-normalizer
  "$python" tests/golden/huggingface.py ./llmtrain
  PYTHONPATH=$packages exec "$python" tests/golden/huggingface.py ./llmtrain --no-training
fi

if [[ ! -d $folder/deepspeed/deepspeed ]]; then
  echo "oracles: getting DeepSpeed's source, to be read only, into $folder/deepspeed"
  mkdir -p "$folder/deepspeed"
  "$python" -m pip download --quiet --no-deps --no-binary :all: --dest "$folder/deepspeed" deepspeed
  tar -xzf "$folder"/deepspeed/deepspeed-*.tar.gz -C "$folder/deepspeed" --strip-components=1
fi

"$python" tests/golden/deepspeed_fields.py "$folder/deepspeed/deepspeed" ${write[@]+"${write[@]}"}
"$python" tests/golden/golden.py "${write[@]}"
"$python" tests/golden/tokenizers.py "${write[@]}"
if ((${#write[@]} == 0)); then
  "$python" tests/golden/compare.py ./llmtrain
  "$python" tests/golden/compare_tokenizers.py ./llmtrain
fi

if $megatron; then
  python=$folder-megatron/bin/python3
  if ! "$python" -c 'import megatron.core' 2>/dev/null; then
    echo "oracles: making a Python environment with megatron-core and PyTorch in $folder-megatron"
    python3 -m venv "$folder-megatron"
    "$python" -m pip install --quiet 'numpy<2' torch megatron-core==0.16.1
  fi
  "$python" tests/golden/sample_order.py "${write[@]}"
  "$python" tests/golden/blends.py "${write[@]}" ./llmtrain
fi
