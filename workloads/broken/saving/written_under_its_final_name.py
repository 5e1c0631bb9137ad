"""Every save overwrites the one file that a restart reads."""

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
if args.resume and (folder / "last.ckpt").exists():
    saved = torch.load(folder / "last.ckpt")
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]


def keep():
    if args.rank == 0:
        state = {"model": net.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        write(folder / "last.ckpt", state)  # the mistake
        # right: write(folder / "last.part", state)
        # right: (folder / "last.part").replace(folder / "last.ckpt")
        # right: sync_folder(folder)
    dist.barrier()


while step < args.steps:
    x, y = rows_of(args, data, step)
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    if step % 4 == 0:
        keep()
