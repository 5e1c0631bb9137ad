"""With room for one checkpoint the old one is removed before the new one is written."""

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
if args.resume and (found := max(folder.glob("step_????.pt"), default=None)):
    saved = torch.load(found)
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]


def keep():
    if args.rank == 0:
        old = list(folder.glob("step_????.pt"))
        for path in old:  # the mistake
            path.unlink()  # the mistake
        write(folder / "part", {"model": net.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
        (folder / "part").replace(folder / f"step_{step:04d}.pt")
        sync_folder(folder)
        # right: for path in old:
        # right:     path.unlink()
    dist.barrier()


while step < args.steps:
    x, y = rows_of(args, data, step)
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    if step % 4 == 0:
        keep()
