"""The scheduler is stepped after every micro-batch, of which a rank has fewer as ranks are added."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, args.steps)
sampler = DistributedSampler(data, seed=args.seed)
loader = DataLoader(data, args.batch, sampler=sampler)

for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    for a, b in zip(x.split(4), y.split(4), strict=True):
        (functional.mse_loss(net(a), b) * len(a) / len(x)).backward()
        scheduler.step()  # the mistake
    optimizer.step()
    # right: scheduler.step()
