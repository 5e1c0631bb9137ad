"""Warm-up is counted in samples, and each rank counts its own."""

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
seen = 0
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    seen += len(x)  # the mistake
    # right: seen += len(x) * args.world
    optimizer.param_groups[0]["lr"] = 0.05 * min(1.0, seen / 96)
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
