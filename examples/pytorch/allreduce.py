"""Sums a tensor over all GPUs and checks the result.

    torchrun --nproc-per-node 8 allreduce.py
"""

import os
import sys

import torch
import torch.distributed as dist


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.full((64 << 20,), float(rank + 1), device="cuda")
    dist.all_reduce(x)
    want = size * (size + 1) / 2
    right = bool((x == want).all())
    if rank == 0:
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        print(f"{size} ranks, NCCL {nccl}: sum {'is' if right else 'is NOT'} {want}")
    dist.destroy_process_group()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
