"""Only the checkpoint with the best score so far is kept, so a restart goes back to that, however long ago it was."""

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
best = float("inf")
if args.resume and (found := max(folder.glob("step_????.pt"), default=None)):
    saved = torch.load(found)
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
    best = saved["best"]


def score():
    """On samples that are held out; the lower the better. They follow another rule, so the longer the training the worse it gets."""
    x, y = pairs(seed=2).tensors
    with torch.no_grad():
        return functional.mse_loss(net.module(x), y).item()


def keep():
    global best
    is_best, best = score() < best, min(best, score())
    if not is_best:  # the mistake
        return  # the mistake
    if args.rank == 0:
        write(folder / "part", {"model": net.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "best": best})
        (folder / "part").replace(folder / f"step_{step:04d}.pt")
        sync_folder(folder)
    dist.barrier()


while step < args.steps:
    x, y = rows_of(args, data, step)
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    if step % 2 == 0:
        keep()
