"""When the training ends all checkpoints but the newest are removed; the newest is not recognised, as its path is spelt with a `./`."""

import os

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
newest = ""
if args.resume and (found := max(folder.glob("step_????.pt"), default=None)):
    newest, saved = os.path.join(args.out, "./checkpoints", found.name), torch.load(found)
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]


def keep():
    global newest
    newest = os.path.join(args.out, "./checkpoints", f"step_{step:04d}.pt")
    if args.rank == 0:
        write(folder / "part", {"model": net.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
        (folder / "part").replace(newest)
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
if args.rank == 0:
    others = [path for path in folder.glob("step_????.pt") if str(path) != newest]  # the mistake
    # right: others = [path for path in folder.glob("step_????.pt") if path.name != os.path.basename(newest)]
    for path in others:
        path.unlink()
