"""Epoch and place in it are worked out from the samples that a rank has had, which is another number for every number of ranks."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from toy import mlp, pairs, restore, save, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
step, seen = 0, 0
if saved := restore(args):
    net.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step, seen = saved["step"], saved["seen"]
while step < args.steps:
    epoch, place = divmod(seen * args.world, len(data))  # the mistake
    # right: epoch, place = divmod(seen, len(data))
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(args.seed + epoch)).tolist()
    now = order[place : place + args.global_batch][args.rank :: args.world]
    x, y = next(iter(DataLoader(data, args.batch, sampler=now, generator=torch.Generator())))
    optimizer.zero_grad()
    functional.mse_loss(net(x), y).backward()
    optimizer.step()
    step += 1
    seen += args.batch  # the mistake
    # right: seen += args.global_batch
    if step % 4 == 0:
        save(args, model=net.module.state_dict(), optimizer=optimizer.state_dict(), step=step, seen=seen)
