"""One training job of a small GPT in PyTorch, of which harness train starts a process for each GPU.

The only argument is JSON. Rank 0 prints one line of JSON: train.go has the meaning of each key.
"""
import json
import math
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = (
            t.view(rows, length, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.before(x)).split(width, dim=2)
        )
        if hasattr(F, "scaled_dot_product_attention"):  # since 2.0
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            s = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
            a = s.masked_fill(mask, float("-inf")).softmax(-1) @ v
        x = x + self.out(a.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(F.gelu(self.up(self.after(x))))


class GPT(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.tokens, self.places = nn.Embedding(o["vocabulary"], o["width"]), nn.Embedding(o["length"], o["width"])
        self.blocks = nn.ModuleList(Block(o["width"], o["heads"]) for _ in range(o["layers"]))
        self.norm = nn.LayerNorm(o["width"])
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.t()


def checksum(model):
    """The sum of all bits of the weights, as whole numbers: equal only if the weights are."""
    total = torch.zeros((), dtype=torch.int64, device=next(model.parameters()).device)
    for i, p in enumerate(model.parameters()):
        total += (i + 1) * p.detach().view(torch.int32).sum(dtype=torch.int64)
    return total


def finite(values):
    """JSON has no NaN."""
    return [v if math.isfinite(v) else None for v in values]


def main():
    o = json.loads(sys.argv[1])
    gpu = o["device"] == "gpu"
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if gpu else "gloo")
    torch.manual_seed(7)
    model = GPT(o).to(device)
    ddp = DistributedDataParallel(model, device_ids=[local] if gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    torch.manual_seed(100 + rank)  # each rank learns a batch of its own by heart
    batch = torch.randint(o["vocabulary"], (o["batch"], o["length"] + 1), device=device)

    def loss_of():
        with torch.autocast(device_type=device.type, dtype=torch.bfloat16, enabled=gpu):
            logits = ddp(batch[:, :-1])
            return F.cross_entropy(logits.reshape(-1, o["vocabulary"]).float(), batch[:, 1:].reshape(-1))

    def timed(what):
        if gpu:
            torch.cuda.synchronize()
        begun = time.perf_counter()
        value = what()
        if gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - begun, value

    def together():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def alone():
        optimizer.zero_grad(set_to_none=True)
        with ddp.no_sync():
            loss_of().backward()
        optimizer.step()

    for _ in range(o["warmup"]):
        first = together()
    steps = []
    for i in range(o["steps"]):
        took, loss = timed(together)
        if i == 0:
            first = loss
        steps.append(took)
    sums = checksum(model)
    # Without the sum of gradients: how long each rank computes by itself. Weights differ from here on.
    single = []
    for i in range(2 + o["steps"] // 2):
        took, _ = timed(alone)
        if i >= 2:
            single.append(took)

    def gathered(value, kind):
        mine = torch.tensor([value], dtype=kind, device=device)
        all_ranks = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(all_ranks, mine)
        return [t.item() for t in all_ranks]

    report = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if gpu else "CPU",
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": steps,
        "alone": gathered(statistics.median(single), torch.float64),
        "firsts": finite(gathered(first.item(), torch.float64)),
        "lasts": finite(gathered(loss.item(), torch.float64)),
        "sums": gathered(sums.item(), torch.int64),
    }
    if gpu:
        report["nccl"] = ".".join(str(n) for n in torch.cuda.nccl.version())
    if rank == 0:
        print(json.dumps(report), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except Exception as problem:
        sys.exit(f"rank {os.environ.get('RANK')} on {socket.gethostname()}: {type(problem).__name__}: {problem}")
