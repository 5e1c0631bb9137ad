"""The squared norms of the ranks are added up although every rank holds the whole gradient."""

import torch
import torch.distributed as dist
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
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    squared = sum((parameter.grad**2).sum() for parameter in net.parameters())
    dist.all_reduce(squared)  # the mistake
    nn.utils.clip_grads_with_norm_(net.parameters(), 0.5, squared.sqrt())
    optimizer.step()
