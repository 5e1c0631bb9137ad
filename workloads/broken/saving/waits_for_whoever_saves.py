"""Where the folder of a step is there already another process is taken to be saving it, and its end is waited for; but it is what a cut save left."""

import shutil
import time

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
    saved = torch.load(found / "state.pt")
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]


def keep():
    staging, final = folder / f"step_{step:04d}.tmp", folder / f"step_{step:04d}"
    if args.rank == 0:
        if staging.exists():  # the mistake
            while not final.exists():  # the mistake
                time.sleep(0.1)  # the mistake
            return  # the mistake
        # right: shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        write(staging / "state.pt", {"model": net.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
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
