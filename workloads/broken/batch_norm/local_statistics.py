"""Batch normalisation takes its statistics from the rank's share of the batch."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp(1, nn.BatchNorm1d(16)))  # the mistake
# right: net = DDP(mlp(1, nn.LayerNorm(16)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
