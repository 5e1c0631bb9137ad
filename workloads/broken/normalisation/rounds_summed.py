"""The micro-batch is fixed, so the number of rounds falls as ranks are added, and with it the sum of their means."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    for a, b in zip(x.split(4), y.split(4), strict=True):
        loss = functional.mse_loss(net(a), b)  # the mistake
        # right: loss = functional.mse_loss(net(a), b) * len(a) / len(x)
        loss.backward()
    optimizer.step()
