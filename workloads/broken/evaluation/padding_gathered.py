"""Ranks are filled up to equal length so that results can be gathered, and the filling is counted."""

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
held_back = pairs(45, seed=2)
share = -(-len(held_back) // args.world)
rows = [row % len(held_back) for row in range(args.rank * share, (args.rank + 1) * share)]
mine = Subset(held_back, rows)
for step, (x, y) in enumerate(epochs(loader, sampler, args.steps)):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        net.eval()
        with torch.no_grad():
            errors = torch.cat([(net.module(a) - b).square().flatten() for a, b in DataLoader(mine, 4)])
        gathered = [torch.zeros_like(errors) for _ in range(args.world)]
        dist.all_gather(gathered, errors)
        score = torch.cat(gathered).mean()  # the mistake
        # right: score = torch.cat(gathered)[: len(held_back)].mean()
        net.train()
        if args.rank == 0:
            print(f"validation {score.item():.6f}", flush=True)
