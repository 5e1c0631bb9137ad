"""The ranks validate on unequally many batches and average after each of them."""

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
held_back = pairs(44, seed=2)
for step, (x, y) in enumerate(epochs(loader, sampler, args.steps)):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    if step == 4:
        mine = Subset(held_back, range(args.rank * 24, min(44, (args.rank + 1) * 24)))  # the mistake
        # right: mine = Subset(held_back, range(args.rank, 44, args.world))
        for a, b in DataLoader(mine, 4):
            with torch.no_grad():
                score = functional.mse_loss(net.module(a), b)
            dist.all_reduce(score)
