"""Nothing tells the sampler which epoch it is, so every epoch goes through the samples in the same order."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)

step = epoch = 0
while step < args.steps:
    # right: sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        functional.mse_loss(net(x), y).backward()
        optimizer.step()
        step += 1
        if step == args.steps:
            break
    epoch += 1
