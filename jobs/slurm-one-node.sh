#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One node with 8 GPUs, one rank each. Submitted from the top of the repository:
#   sbatch jobs/slurm-one-node.sh DECK [block.key=value ...]
# For another node: --cpus-per-task is its cores / 8; without GPUs give --gres=none and as many tasks as it has sockets.
# What a site wants besides (partition, account) goes on sbatch's command line or into SBATCH_PARTITION, SBATCH_ACCOUNT.
#SBATCH --job-name=llmtrain
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --gres=gpu:8
#SBATCH --gres-flags=enforce-binding
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log

export NCCL_DEBUG="${NCCL_DEBUG:-WARN}" # its version once, and what goes wrong

exec "${LLMTRAIN_HOME:-$SLURM_SUBMIT_DIR}/jobs/slurm-run.sh" "$@"
