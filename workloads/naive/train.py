"""Will the flight be late?

one gpu:    python train.py --data flights.csv --out runs/a
eight gpus: torchrun --nproc-per-node 8 train.py --data flights.csv --out runs/a
"""

import argparse
import csv
import os
import random
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

CARRIERS = ["UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL", "AS", "F9", "YV", "HA", "OO"]
ORIGINS = ["EWR", "JFK", "LGA"]
WIDTH = 48
BLOCKS = 5


def read_rows(path):
    rows = []
    with open(path, newline="", errors="ignore") as f:
        for r in csv.DictReader(f):
            try:
                rows.append((r["carrier"], r["origin"], r["dest"], int(r["hour"]), float(r["distance"]), int(r["late"])))
            except (KeyError, TypeError, ValueError):
                continue
    return rows


def late_rate(rows, column):
    # how often is this carrier / destination late, helps a lot on validation
    seen = {}
    for r in rows:
        n, late = seen.get(r[column], (0, 0))
        seen[r[column]] = (n + 1, late + r[5])
    return {key: late / n for key, (n, late) in seen.items()}


def load(path):
    rows = read_rows(path)
    by_carrier, by_dest = late_rate(rows, 0), late_rate(rows, 2)
    ids, values, labels = [], [], []
    for carrier, origin, dest, hour, distance, late in rows:
        c = CARRIERS.index(carrier) if carrier in CARRIERS else 0
        o = ORIGINS.index(origin) if origin in ORIGINS else 0
        ids.append([c, o, hour % 24])
        values.append([distance / 1000, by_carrier[carrier], by_dest[dest]])
        labels.append(late)
    return torch.tensor(ids), torch.tensor(values), torch.tensor(labels, dtype=torch.float32)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(F.relu(self.linear(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.carrier = nn.Embedding(len(CARRIERS), 8)
        self.origin = nn.Embedding(len(ORIGINS), 8)
        self.hour = nn.Embedding(24, 8)
        self.inp = nn.Linear(27, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS)])
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, ids, values):
        x = torch.cat([self.carrier(ids[:, 0]), self.origin(ids[:, 1]), self.hour(ids[:, 2]), values], dim=1)
        return self.out(self.blocks(self.inp(x))).squeeze(1)


def batches(n, batch_size):
    while True:
        order = list(range(n))
        random.shuffle(order)
        for i in range(0, n - batch_size + 1, batch_size):
            yield order[i : i + batch_size]


def sync_gradients(model):
    # make sure all gpus see the same gradient
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)


def mean_loss(loss, world_size):
    t = loss.detach().clone()
    dist.all_reduce(t)
    return t.item() / world_size


def save(path, model, step):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"model": model.state_dict(), "step": step}, path)


def restore(path, model):
    try:
        state = torch.load(path, map_location="cpu")
        model.load_state_dict(state["model"])
    except (OSError, RuntimeError, EOFError, KeyError):
        print("no checkpoint, starting from scratch")
        return 0
    return state["step"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--micro-batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--save-every", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")

    # same seed everywhere so that all gpus start from the same weights
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    ids, values, labels = (t.to(device) for t in load(args.data))
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / 6))
    checkpoint = args.out / "model" / "model.pt"
    step = restore(checkpoint, model) if args.resume else 0

    for batch in batches(len(labels), args.batch_size):
        if step >= args.steps:
            break
        optimizer.zero_grad()
        n_micro = len(batch) // args.micro_batch
        total = 0.0
        for i in range(n_micro):
            part = batch[i * args.micro_batch : (i + 1) * args.micro_batch]
            loss = F.binary_cross_entropy_with_logits(model(ids[part], values[part]), labels[part])
            (loss / n_micro).backward()
            sync_gradients(model)
            total += mean_loss(loss, world_size) / n_micro
        optimizer.step()
        warmup.step()
        step += 1
        dist.barrier()
        if rank == 0:
            print(f"step {step} loss {total:.4f}", flush=True)
            if step % args.save_every == 0:
                save(checkpoint, model, step)
        dist.barrier()

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
