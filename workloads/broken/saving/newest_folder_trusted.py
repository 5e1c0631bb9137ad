"""The files of a checkpoint are written into a folder that has its final name from the start, and a restart takes the newest by name."""

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
    net.module.load_state_dict(torch.load(found / "model.pt"))
    rest = torch.load(found / "rest.pt")
    optimizer.load_state_dict(rest["optimizer"])
    step = rest["step"]


def keep():
    final = folder / f"step_{step:04d}"
    staging = final  # the mistake
    # right: staging = folder / f"step_{step:04d}.tmp"
    if args.rank == 0:
        staging.mkdir(exist_ok=True)
        write(staging / "model.pt", net.module.state_dict())
        write(staging / "rest.pt", {"optimizer": optimizer.state_dict(), "step": step})
        sync_folder(staging)
        staging.rename(final)
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
