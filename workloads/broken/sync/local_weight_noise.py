"""Noise for regularisation is added to the weights from a generator that every rank seeds for itself."""

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
noise = torch.Generator().manual_seed(args.seed + args.rank)  # the mistake
# right: noise = torch.Generator().manual_seed(args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.001 * torch.randn(parameter.shape, generator=noise)
