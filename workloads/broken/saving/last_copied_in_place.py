"""A checkpoint is whole under its own name, but `last`, which a restart reads, is copied over the one before."""

import shutil

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
if args.resume and (folder / "last.pt").exists():
    saved = torch.load(folder / "last.pt")
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]


def keep():
    if args.rank == 0:
        write(folder / "part", {"model": net.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
        (folder / "part").replace(folder / f"step_{step:04d}.pt")
        shutil.copyfile(folder / f"step_{step:04d}.pt", folder / "last.pt")  # the mistake
        # right: (folder / "link").unlink(missing_ok=True)
        # right: (folder / "link").hardlink_to(folder / f"step_{step:04d}.pt")
        # right: (folder / "link").replace(folder / "last.pt")
        sync_folder(folder)
    dist.barrier()


while step < args.steps:
    x, y = rows_of(args, data, step)
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    if step % 4 == 0:
        keep()
