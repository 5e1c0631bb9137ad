"""Every rank renames the staging folder as soon as it sees a file of each rank there, whether or not that is whole."""

import contextlib

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from toy import mlp, pairs, rows_of, start, sync_folder, write

args = start()
data, net = pairs(), DDP(mlp())
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
folder = args.out / "checkpoints"
folder.mkdir(exist_ok=True)
step = 0
if args.resume and (found := max(folder.glob("step_????"), default=None)):
    saved = torch.load(found / f"rank{args.rank}.pt")
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]


def keep():
    staging = folder / f"step_{step:04d}.tmp"
    staging.mkdir(exist_ok=True)
    write(staging / f"rank{args.rank}.pt", {"model": net.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
    everything_there = len(list(staging.glob("rank*.pt"))) == args.world if staging.exists() else False  # the mistake
    # right: dist.barrier()
    # right: everything_there = args.rank == 0
    if everything_there:
        with contextlib.suppress(FileNotFoundError):  # whoever comes second finds it renamed
            sync_folder(staging)
            staging.rename(folder / f"step_{step:04d}")
            sync_folder(folder)
    # right: dist.barrier()


while step < args.steps:
    x, y = rows_of(args, data, step)
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    if step % 4 == 0:
        keep()
