"""The weight penalty is added to the loss of every micro-batch, so it counts as often as there are micro-batches."""

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
    for a, b in zip(x.split(4), y.split(4), strict=True):
        loss = functional.mse_loss(net(a), b) * len(a) / len(x)
        penalty = 0.1 * sum((parameter**2).sum() for parameter in net.parameters())
        (loss + penalty).backward()  # the mistake
        # right: (loss + penalty * len(a) / len(x)).backward()
    optimizer.step()
