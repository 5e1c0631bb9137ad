"""Whichever rank sees the files of all renames the folder, though another may still be writing its own."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from toy import in_order, mlp, pairs, put_back, start, state_of, sync_folder, write_synced

args = start()
data = pairs()
net = DDP(mlp(1, nn.Dropout(0.2)))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
folder = args.out / "checkpoints"
folder.mkdir(exist_ok=True)
torch.manual_seed(args.seed + args.rank)
step = 0
if args.resume and (kept := sorted(folder.glob("step_*"))):
    step = put_back(args, torch.load(kept[-1] / f"rank{args.rank}.pt"), net, optimizer)
while step < args.steps:
    x, y = in_order(args, data, step)
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    if step % 2 == 0:
        state = state_of(net, optimizer, step)
        place, staged = folder / f"step_{step:04d}", folder / f"part_{step:04d}"
        staged.mkdir(exist_ok=True)
        write_synced(staged / f"rank{args.rank}.pt", state)
        # right: dist.barrier()
        with contextlib.suppress(FileNotFoundError):
            # right: if args.rank == 0:
            if len(list(staged.iterdir())) == args.world:  # the mistake
                sync_folder(staged)
                staged.rename(place)
                sync_folder(folder)
        # right: dist.barrier()
