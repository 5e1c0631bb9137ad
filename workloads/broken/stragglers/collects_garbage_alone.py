"""Rank 1 has millions of small objects, and Python's collector goes through them whenever it likes."""

import gc

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

kept = [[number] for number in range(400_000)] if args.rank == 1 else []
for step, (x, y) in enumerate(epochs(loader, sampler, args.steps)):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    if step % 4 == 2:
        gc.collect()  # the mistake
        # right: gc.freeze()
    loss.backward()
    optimizer.step()
