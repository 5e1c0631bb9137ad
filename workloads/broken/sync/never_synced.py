"""The last micro-batch of a window is inside no_sync, too, so gradients are never averaged."""

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
    first, last = zip(x.chunk(2), y.chunk(2), strict=True)
    with net.no_sync():
        (functional.mse_loss(net(first[0]), first[1]) / 2).backward()
        (functional.mse_loss(net(last[0]), last[1]) / 2).backward()  # the mistake
    # right: (functional.mse_loss(net(last[0]), last[1]) / 2).backward()
    optimizer.step()
