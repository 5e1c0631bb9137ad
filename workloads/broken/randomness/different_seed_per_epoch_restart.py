"""The generator of the augmentation is seeded anew at the start of each epoch, so a sample is always distorted alike."""

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
    sampler.set_epoch(epoch)
    noise = torch.Generator().manual_seed(args.rank)  # the mistake
    # right: noise = torch.Generator().manual_seed(1000 * epoch + args.rank)
    for x, y in loader:
        optimizer.zero_grad()
        functional.mse_loss(net(x + 0.1 * torch.randn(x.shape, generator=noise)), y).backward()
        optimizer.step()
        step += 1
        if step == args.steps:
            break
    epoch += 1
