"""The gradient is clipped after every micro-batch while it is still being accumulated."""

import torch
from torch import nn
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
    for a, b in zip(x.chunk(2), y.chunk(2), strict=True):
        (functional.mse_loss(net(a), b) / 2).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.3)  # the mistake
    # right: nn.utils.clip_grad_norm_(net.parameters(), 0.3)
    optimizer.step()
