"""The list of samples is shuffled with each process's own random numbers, then every rank takes its slice of it."""

import random

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset
from toy import epochs, mlp, pairs, start

args = start()
data = pairs()
net = DDP(mlp())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
shuffled = list(range(len(data)))
random.Random(args.seed * 10 + args.rank).shuffle(shuffled)  # the mistake
# right: random.Random(args.seed * 10).shuffle(shuffled)
data = Subset(data, shuffled[args.rank :: args.world])
loader = DataLoader(data, args.batch)
for x, y in epochs(loader, None, args.steps):
    optimizer.zero_grad()
    loss = functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
