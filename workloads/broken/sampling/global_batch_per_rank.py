"""The loader of every rank is given the global batch size, so a step takes that many samples on each of them."""

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
loader = DataLoader(data, args.global_batch, sampler=sampler)  # the mistake
# right: loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
