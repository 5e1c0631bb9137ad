"""The loader drops the last incomplete batch, but the sampler has filled it up before, so how long an epoch is depends on the number of ranks."""

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from toy import epochs, mlp, pairs, start

args = start()
data = pairs(47)
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=args.seed)  # the mistake
# right: sampler = DistributedSampler(data, seed=args.seed, drop_last=True)
loader = DataLoader(data, args.batch, sampler=sampler, drop_last=True)
for x, y in epochs(loader, sampler, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
