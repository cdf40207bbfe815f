#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# 8 nodes with 8 GPUs each, 64 ranks, one a GPU. Submitted from the top of the repository:
#   sbatch jobs/slurm-8-nodes.sh DECK [block.key=value ...]
# For other nodes: --cpus-per-task is a node's cores / 8, and the two NCCL lines below name its network.
# What a site wants besides (partition, account) goes on sbatch's command line or into SBATCH_PARTITION, SBATCH_ACCOUNT.
#SBATCH --job-name=llmtrain
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --gres=gpu:8
#SBATCH --gres-flags=enforce-binding
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log

export NCCL_DEBUG="${NCCL_DEBUG:-WARN}" # its version once, and what goes wrong
export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-^lo,docker,virbr}" # NCCL's start-up: any interface but these
export NCCL_IB_HCA="${NCCL_IB_HCA:-mlx5}" # the data: the InfiniBand or RoCE adapters whose names start so

exec "${LLMTRAIN_HOME:-$SLURM_SUBMIT_DIR}/jobs/slurm-run.sh" "$@"
