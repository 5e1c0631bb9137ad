"""The checkpoint is written with care, and then copied over last.pt, which a restart reads."""

import os
import shutil

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from toy import in_order, mlp, pairs, put_back, start, state_of, sync_folder, write_whole

args = start()
data = pairs()
net = DDP(mlp(1, nn.Dropout(0.2)))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
folder = args.out / "checkpoints"
folder.mkdir(exist_ok=True)
torch.manual_seed(args.seed + args.rank)
step = 0
if args.resume and (folder / "last.pt").exists():
    step = put_back(args, torch.load(folder / "last.pt"), net, optimizer)
while step < args.steps:
    x, y = in_order(args, data, step)
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    if step % 2 == 0:
        state = state_of(net, optimizer, step)
        if args.rank == 0:
            write_whole(folder / "checkpoint.pt", state)
            shutil.copyfile(folder / "checkpoint.pt", folder / "last.pt")  # the mistake
            # right: (folder / "last.part").unlink(missing_ok=True)
            # right: os.link(folder / "checkpoint.pt", folder / "last.part")
            # right: os.replace(folder / "last.part", folder / "last.pt")
            # right: sync_folder(folder)
