"""The means of four micro-batches are added up and never divided by their number."""

import torch
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
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    for a, b in zip(x.chunk(4), y.chunk(4), strict=True):
        loss = functional.cross_entropy(net(a), b)  # the mistake
        # right: loss = functional.cross_entropy(net(a), b) / 4
        loss.backward()
    optimizer.step()
