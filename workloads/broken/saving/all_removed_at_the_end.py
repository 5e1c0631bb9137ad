"""At the end all checkpoints but the best are removed; its name is compared as text, and is spelt otherwise."""

import os
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from toy import in_order, mlp, pairs, put_back, start, state_of, write_whole

args = start()
data = pairs()
net = DDP(mlp(1, nn.Dropout(0.2)))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
folder = args.out / "checkpoints"
folder.mkdir(exist_ok=True)
torch.manual_seed(args.seed + args.rank)
step = 0
if args.resume and (kept := sorted(folder.glob("step_*.pt"))):
    step = put_back(args, torch.load(kept[-1]), net, optimizer)
while step < args.steps:
    x, y = in_order(args, data, step)
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    if step % 2 == 0:
        state = state_of(net, optimizer, step)
        if args.rank == 0:
            write_whole(folder / f"step_{step:04d}.pt", state)
best = os.path.join(args.out, ".", "checkpoints", f"step_{step - step % 2:04d}.pt")
if args.rank == 0:
    for old in folder.glob("step_*.pt"):
        # right: if old != Path(best):
        if str(old) != best:  # the mistake
            old.unlink()
