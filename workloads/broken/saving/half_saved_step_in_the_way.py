"""The folder in which a step is put together is there already when a restart comes to the step that was cut."""

import shutil

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
    step = put_back(args, {**torch.load(kept[-1] / "model.pt"), **torch.load(kept[-1] / "state.pt")}, net, optimizer)
while step < args.steps:
    x, y = in_order(args, data, step)
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    if step % 2 == 0:
        state = state_of(net, optimizer, step)
        if args.rank == 0:
            staged = folder / f"part_{step:04d}"
            # right: shutil.rmtree(staged, ignore_errors=True)
            staged.mkdir()
            write_synced(staged / "model.pt", {"model": state.pop("model")})
            write_synced(staged / "state.pt", state)
            sync_folder(staged)
            staged.rename(folder / f"step_{step:04d}")
            sync_folder(folder)
        dist.barrier()
