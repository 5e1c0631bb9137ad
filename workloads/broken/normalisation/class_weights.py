"""Weighted cross-entropy divides by the weights of the samples that happen to lie on the rank."""

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, labelled, mlp, start

args = start()
data = labelled()
net = DDP(mlp(4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
weights = torch.tensor([1.0, 2.0, 4.0, 8.0])
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.cross_entropy(net(x), y, weight=weights)  # the mistake
    # right: share = weights[y].sum()
    # right: dist.all_reduce(share)
    # right: loss = functional.cross_entropy(net(x), y, weight=weights, reduction="sum") * args.world / share
    loss.backward()
    optimizer.step()
