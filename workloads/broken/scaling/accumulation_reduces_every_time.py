"""no_sync is around the backward alone, and the wrapper decides in the forward: gradients go round after every micro-batch."""

from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, pairs, start

args = start()
data = pairs(2048)
net = DDP(nn.Sequential(nn.Linear(8, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)

for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    for micro, (a, b) in enumerate(zip(x.chunk(4), y.chunk(4), strict=True)):
        waits = nullcontext()  # the mistake
        # right: waits = net.no_sync() if micro < 3 else nullcontext()
        with waits:
            (functional.mse_loss(net(a), b) / 4).backward()
    optimizer.step()
