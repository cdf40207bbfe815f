#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What NCCL reaches on this machine in plain loops, as nccl-tests measure it: to set beside `llmtrain doctor`.

usage: python3 -m torch.distributed.run --standalone --nproc-per-node N perf/nccl_loops.py [MEBIBYTES]
Prints GB/s that a rank sends, of fp32 tensors of MEBIBYTES (256) that all ranks hold together: 2 (n - 1) / n of the
tensor in an all-reduce, (n - 1) / n in the others, over the mean time of 20 calls in a row; and a transfer between
ranks 0 and 1 that send to each other at once. Needs PyTorch; nothing of llmtrain.
"""
import os
import sys
import time

import torch
import torch.distributed as dist

WARM_UP, CALLS = 5, 20


def seconds(call):
    for _ in range(WARM_UP):
        call()
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / CALLS


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    size, rank = dist.get_world_size(), dist.get_rank()
    count = int(sys.argv[1] if len(sys.argv) > 1 else 256) * 2**20 // 4 // size * size
    whole = torch.randn(count, device="cuda")
    part = torch.randn(count // size, device="cuda")
    rates = {
        "all-reduce": (2 * (size - 1) / size, lambda: dist.all_reduce(whole)),
        "all-gather": ((size - 1) / size, lambda: dist.all_gather_into_tensor(whole, part)),
        "reduce-scatter": ((size - 1) / size, lambda: dist.reduce_scatter_tensor(part, whole)),
    }
    if size == 2:
        other = torch.empty_like(whole)

        def exchange():
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, whole, 1 - rank),
                                                dist.P2POp(dist.irecv, other, 1 - rank)]):
                work.wait()

        rates["between two"] = (1, exchange)
    for name, (share, call) in rates.items():
        rate = share * 4 * count / seconds(call) / 1e9
        whole.normal_()  # sums of sums would run over
        if rank == 0:
            print(f"{name:15} {rate:8.1f} GB/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
